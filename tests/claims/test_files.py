"""What a job can see and change of the host's files."""

from __future__ import annotations

import json
import os
import re
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from claims.backends import REVIEWED, on

if TYPE_CHECKING:
    from claims.jobs import Jobs

HIDDEN = ["/root", "/home", "/var/tmp", "/run", "/opt", "/srv"]
SEEN = """
import json, os
print(json.dumps([path for path in json.loads(input()) if os.path.lexists(path)]))
"""
LISTED = """
import json, os
print(json.dumps({name: sorted(os.listdir(name)) for name in json.loads(input())}))
"""
CHANGEABLE = """
import errno, json, os
own = {"/work", "/tmp", "/dev/shm", "/proc"}
changeable = []
for place in json.loads(input()):
    try:
        os.mkdir(place + "/made-by-a-job")
    except OSError as error:
        if error.errno == errno.EROFS:
            continue
    changeable.append(place)
print(json.dumps(changeable))
"""
MOUNTED = """
import json, os
places = [line.split()[4] for line in open("/proc/self/mountinfo")]
print(json.dumps([place for place in places if os.path.isdir(place)]))
"""
OWN = {"/work", "/tmp", "/dev/shm", "/proc"}
OF_ITS_KERNEL = {"/sys", "/dev", "/dev/pts"}  # in the memory of a sandbox; no file of any disk
PROGRAMS = ["/usr", "/usr/bin", "/usr/lib", "/usr/local", "/bin/", "/lib/"]


def hidden() -> list[str]:
    """Return where something can be planted: a host may be read-only."""
    return [directory for directory in HIDDEN if os.access(directory, os.W_OK)]


def check_canaries(jobs: Jobs) -> None:
    """Plant a file in each of them, and look for it from inside."""
    with ExitStack() as stack:
        planted: dict[str, str] = {}
        for directory in hidden():
            place = tempfile.TemporaryDirectory(prefix="rookhold-canary-", dir=directory)
            canary = Path(stack.enter_context(place)) / "canary"
            canary.parent.chmod(0o755)
            canary.write_text("a file of the host")
            canary.chmod(0o644)
            planted[str(canary)] = directory
        seen = jobs.ask(SEEN, stdin=json.dumps(list(planted)))
        assert len(planted) > 1
        seen = [planted[each] for each in seen]
    assert seen == [], f"seen of the host: {seen}"


def check_read_only(jobs: Jobs, places: list[str]) -> None:
    assert jobs.ask(CHANGEABLE, stdin=json.dumps(places)) == [], "it is not read-only"


def names_in(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def check_system(jobs: Jobs) -> None:
    """Compare what a job finds below `/` with the root file system that was reviewed."""
    rootfs = Path(jobs.gateway.settings["ROOKHOLD_ROOTFS"])
    other = {"proc", "sys", "dev", "work", "tmp", "root"}  # a job's own, the kernel's or root's
    places = [each for each in rootfs.iterdir() if each.is_dir() and each.name not in other]
    reviewed = {f"/{each.name}": names_in(each) for each in places} | {"/": names_in(rootfs)}
    found = jobs.ask(LISTED, stdin=json.dumps(list(reviewed)))
    assert found == reviewed, "another system than the reviewed one"


@pytest.mark.root  # to plant something in each of them
def test_no_host_directories(confined: Jobs) -> None:
    check_canaries(confined)


@pytest.mark.root
def test_no_host_directories_sabotaged(weakened: Jobs) -> None:
    # In there too, /root is for root alone.
    shown = [directory for directory in hidden() if directory != "/root"]
    if weakened.own_kernel:  # that one has the places of the reviewed root, with others in them
        rootfs = Path(weakened.gateway.settings["ROOKHOLD_ROOTFS"])
        shown = [each for each in shown if (rootfs / each.split("/")[1]).is_dir()]
    assert shown
    with pytest.raises(AssertionError, match=re.escape(f"seen of the host: {shown}")):
        check_canaries(weakened.without("host-directories", "private-rootfs"))


@on(*REVIEWED)
def test_reviewed_system_only(confined: Jobs) -> None:
    check_system(confined)


@on(*REVIEWED)
def test_reviewed_system_only_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="another system than the reviewed one"):
        check_system(weakened.without("host-directories", "private-rootfs"))


def test_read_only_root(confined: Jobs) -> None:
    own = OWN | OF_ITS_KERNEL if confined.own_kernel else OWN
    mounted = [place for place in confined.ask(MOUNTED) if place not in own]
    assert "/" in mounted
    more = ["/usr"] if confined.own_kernel else ["/etc", "/dev"]
    check_read_only(confined, [*mounted, *more])


def test_read_only_root_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="it is not read-only"):
        check_read_only(weakened.without("read-only-root"), ["/"])


@on("namespaces-dev")
def test_read_only_programs(confined: Jobs) -> None:
    check_read_only(confined, PROGRAMS)


@on("namespaces-dev")
def test_read_only_programs_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="it is not read-only"):
        check_read_only(weakened.without("read-only-usr"), PROGRAMS)
