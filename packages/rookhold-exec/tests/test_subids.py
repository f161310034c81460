"""Uids of their own for the jobs of a server without privileges."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from rookhold_exec import subids

ACCOUNT = "nobody"  # newuidmap wants a name; its range is in files that only the test sees
FIRST_UID, FIRST_GID = 1_300_000, 1_400_000

PROGRAM = """
    import asyncio, json, os, sys
    from pathlib import Path
    from rookhold_exec import probe, subids
    from rookhold_exec.select import choose_backend
    from rookhold_exec.settings import ExecSettings
    from rookhold_exec.testing import Harness

    def status(pid):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return dict(line.split(":", 1) for line in lines)

    def slots():
        # Each job's second process: the kernel's ids, as they are outside of every namespace.
        pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        found = []
        for pid in pids:
            try:
                if Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\\x0060.125\\0":
                    told = status(pid)
                    found.append([int(told["Uid"].split()[0]), int(told["Gid"].split()[0])])
            except OSError:
                continue
        return sorted(found)

    harness = Harness(choose_backend("namespaces-dev", ExecSettings(node="none", workers=WORKERS)))

    async def scenario():
        executor = harness.executor
        await executor.open()
        runs = [
            await executor.start(harness.plan("bash", "exec sleep 60.125", slot=slot))
            for slot in range(2)
        ]
        until = asyncio.get_running_loop().time() + 20
        while len(found := slots()) < 2 and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.02)  # bash has still to become what it runs
        for run in runs:
            run.kill("cancelled")
        reports = []
        for run in runs:
            async for _ in run.events():
                pass
            reports.append(await run.wait())
        told = await harness.finish(harness.plan(
            "bash", "id -u; id -G; echo $(</proc/self/uid_map)"))
        wrote = await harness.finish(harness.plan(
            "bash", "echo kept > output/file", outputs=("output/file",)))
        await executor.close()
        return found, told.stdout.decode(), [str(r.status) for r in reports], wrote

    found, told, ends, wrote = harness.do(scenario())
    fact = [f for f in probe.host().facts if f.control == "newuidmap"][0]
    print(json.dumps({
        "uid": os.getuid(), "found": found, "told": told, "ends": ends,
        "available": fact.available, "why": fact.why,
        "outputs": [o.content.decode() for o in wrote.report.collected],
        "controls": list(wrote.report.provenance.controls),
    }))
"""


def as_account(*, ranges: int, workers: int) -> dict[str, Any]:
    """Run the program as an account for which `ranges` ids are set aside."""
    program = f"WORKERS = {workers}\n" + textwrap.dedent(PROGRAM)
    group = pwd.getpwnam(ACCOUNT).pw_gid
    script = (
        "mount -t tmpfs none /mnt && "
        f"echo {ACCOUNT}:{FIRST_UID}:{ranges} > /mnt/subuid && "
        f"echo {ACCOUNT}:{FIRST_GID}:{ranges} > /mnt/subgid && "
        "for file in /etc/subuid /etc/subgid; do [ -e $file ] || : > $file; done && "
        "mount --bind /mnt/subuid /etc/subuid && mount --bind /mnt/subgid /etc/subgid && "
        f"exec setpriv --reuid {ACCOUNT} --regid {group} --clear-groups "
        f"'{os.path.realpath(sys.executable)}' -B -c \"$PROGRAM\""
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": ":".join(sys.path),
            "HOME": "/",
            "PROGRAM": program,
        },
        cwd="/",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.root
@pytest.mark.readable
@pytest.mark.linux_ns
@pytest.mark.newuidmap
def test_with_a_range_every_slot_has_a_uid_of_its_own_without_root() -> None:
    answer = as_account(ranges=8, workers=4)
    assert answer["uid"] != 0
    assert answer["found"] == [[FIRST_UID, FIRST_GID], [FIRST_UID + 1, FIRST_GID + 1]]
    assert answer["ends"] == ["cancelled", "cancelled"]
    assert answer["told"].split() == ["1000", "1000", "1000", "1", "1"]
    assert answer["outputs"] == ["kept\n"]
    assert answer["available"]
    assert "user-namespace" in answer["controls"]


@pytest.mark.root
@pytest.mark.readable
@pytest.mark.linux_ns
@pytest.mark.newuidmap
def test_with_a_range_too_small_for_the_slots_all_have_the_server_s_uid() -> None:
    answer = as_account(ranges=3, workers=4)
    assert answer["found"] == [[answer["uid"], answer["uid"]]] * 2
    assert answer["outputs"] == ["kept\n"]


@pytest.fixture
def programs_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: f"/usr/bin/{name}")
    monkeypatch.setattr(subids, "_works", lambda found: True)


@pytest.mark.usefixtures("programs_are_there")
@pytest.mark.parametrize(
    ("lines", "count", "first"),
    [
        ("{uid}:100:10", 10, 100),
        ("{uid}:100:9", 10, None),
        ("{uid}:100:9\n{uid}:500:65536", 10, 500),
        ("somebody:100:65536", 1, None),
        ("{uid}:x:65536", 1, None),
        ("{uid}", 1, None),
        ("", 1, None),
        (None, 1, None),
    ],
)
def test_the_first_range_of_this_user_that_is_large_enough_is_taken(
    tmp_path: Path, lines: str | None, count: int, first: int | None
) -> None:
    for name in ("subuid", "subgid"):
        if lines is not None:
            (tmp_path / name).write_text(lines.format(uid=os.getuid()) + "\n")
    found, why = subids.find(count, root=tmp_path)
    if first is None:
        assert found is None
        assert "subuid" in why
    else:
        assert found is not None
        assert (found.uid, found.gid, found.count) == (first, first, count)


@pytest.mark.usefixtures("programs_are_there")
def test_groups_are_needed_as_well_as_users(tmp_path: Path) -> None:
    (tmp_path / "subuid").write_text(f"{os.getuid()}:100:10\n")
    found, why = subids.find(10, root=tmp_path)
    assert found is None
    assert "subgid" in why


def test_a_host_without_newuidmap_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path: None)
    assert subids.find() == (None, "newuidmap is not installed (Debian: uidmap)")
