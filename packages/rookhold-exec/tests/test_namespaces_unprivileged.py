"""The namespace backend for a server without privileges: a range of uids, a delegated group."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from reviewed import VERSION_2, WithAnyGroups, surveyed
from rootfs import test_rootfs

from rookhold_exec.backends.namespaces import PROMISED, Namespaces
from rookhold_exec.launcher.groups import Groups, own_name

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.root,
    pytest.mark.readable,
    pytest.mark.linux_ns,
    pytest.mark.newuidmap,
    pytest.mark.rootfs,
]
ACCOUNT = "nobody"  # its range is in files that only the test sees
FIRST_UID = 1_300_000
BY_GROUP = ["cgroup-cpu", "cgroup-memory", "cgroup-pids"]

PROGRAM = """
    import json, os, sys
    from pathlib import Path
    from reviewed import settings
    from rookhold_exec.backends.namespaces import Namespaces
    from rookhold_exec.cgroup.discovery import find
    from rookhold_exec.testing import Harness
    from rookhold_types.limits import Limits
    told, faults = json.loads(sys.argv[1])
    place = find()[-1].place
    told["found"]["places"] = [] if place is None or faults else [place]
    backend = Namespaces(settings(surveyed=told, faults=frozenset(faults), node="none"), "")
    told["found"]["subids"], why = backend.slots()
    harness = Harness(backend)
    harness.do(harness.executor.open())
    look = harness.run("bash", "id -u; cat /proc/self/uid_map; touch /x /etc/x; ls -d /proc/1",
                       slot=1)
    report = harness.run("python", "x = bytearray(256 << 20); x[::4096] = b'x' * (1 << 16)",
                         limits=Limits(mem_mb=64)).report
    print(json.dumps([os.getuid(), look.stdout.decode().split(), look.stderr.decode(),
                      list(look.report.provenance.controls), report.killed_by]))
    harness.close()
"""


def as_account(kind: type[Namespaces], faults: list[str], group: str = "") -> list[Any]:
    """Run the program as an account with a range of ids, from the group whose list that is."""
    gid = pwd.getpwnam(ACCOUNT).pw_gid
    script = (
        "range=$(mktemp) && chmod 644 $range && "
        f"echo {ACCOUNT}:{FIRST_UID}:8 > $range && "
        "mount --bind $range /etc/subuid && mount --bind $range /etc/subgid && rm $range && "
        '{ [ -z "$GROUP" ] || echo $$ > "$GROUP"; } && '
        f"exec setpriv --reuid {ACCOUNT} --regid {gid} --clear-groups "
        f'\'{os.path.realpath(sys.executable)}\' -B -c "$PROGRAM" "$TOLD"'
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        env={
            **{name: text for name, text in os.environ.items() if name.startswith("ROOKHOLD_")},
            "ROOKHOLD_TEST_ROOTFS": str(test_rootfs()),
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": ":".join(sys.path),
            "HOME": "/",
            "GROUP": group,
            "PROGRAM": textwrap.dedent(PROGRAM),
            "TOLD": json.dumps([surveyed(kind), faults]),
        },
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer: list[Any] = json.loads(done.stdout)
    return answer


def check_confined(uid: int, seen: list[str], errors: str) -> None:
    assert uid == pwd.getpwnam(ACCOUNT).pw_uid
    assert seen[:2] == ["1000", "1000"]
    assert errors.count("Read-only file system") == 2
    assert "/proc/1" in errors


def test_all_but_the_groups_holds_without_root() -> None:
    uid, seen, errors, controls, _ = as_account(WithAnyGroups, BY_GROUP)
    check_confined(uid, seen, errors)
    assert set(controls) == PROMISED - set(BY_GROUP)


@pytest.fixture
def unit() -> Iterator[Path]:
    """Make a group as systemd makes one for a unit of that account, delegated to it."""
    [kind] = VERSION_2.values
    [[name, version, place]] = surveyed(kind)["found"]["places"]
    Groups([(name, version, place)], own_name()).close()  # the place itself may have to be made
    made = Path(place) / f"test-{os.getpid()}.service"
    made.mkdir()
    os.setxattr(made, "user.delegate", b"1")
    account = pwd.getpwnam(ACCOUNT)
    for path in (made, *(made / name for name in ("cgroup.procs", "cgroup.subtree_control"))):
        os.chown(path, account.pw_uid, account.pw_gid)
    yield made
    for below in sorted(made.rglob("*"), reverse=True):
        if below.is_dir():
            below.rmdir()
    made.rmdir()


@pytest.mark.groups("v2:memory", "v2:pids")
def test_a_delegated_group_and_a_range_of_uids_are_all_that_it_takes(unit: Path) -> None:
    [kind] = VERSION_2.values
    uid, seen, errors, controls, killed_by = as_account(kind, [], str(unit / "cgroup.procs"))
    check_confined(uid, seen, errors)
    assert set(controls) == PROMISED
    assert killed_by == "cgroup-oom"
