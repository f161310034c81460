"""What a job can see and change of the host's files."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from claims.jobs import Jobs

pytestmark = pytest.mark.linux_ns

HIDDEN = ["/root", "/home", "/var", "/run", "/opt", "/srv"]
SEEN = """
import json, os
print(json.dumps([path for path in json.loads(input()) if os.path.lexists(path)]))
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
PROGRAMS = ["/usr", "/usr/bin", "/usr/lib", "/usr/local", "/bin/", "/lib/"]


def check_canary(jobs: Jobs, directory: str) -> None:
    with tempfile.TemporaryDirectory(prefix="rookhold-canary-", dir=directory) as planted:
        Path(planted).chmod(0o755)
        canary = Path(planted) / "canary"
        canary.write_text("a file of the host")
        canary.chmod(0o644)
        seen = jobs.ask(SEEN, stdin=json.dumps([directory, planted, str(canary)]))
    assert seen == [], "a directory of the host was seen"


def check_read_only(jobs: Jobs, places: list[str]) -> None:
    assert jobs.ask(CHANGEABLE, stdin=json.dumps(places)) == [], "it is not read-only"


@pytest.mark.root  # to plant something in each of them
@pytest.mark.parametrize("directory", HIDDEN)
def test_no_host_directories(confined: Jobs, directory: str) -> None:
    check_canary(confined, directory)


@pytest.mark.root
@pytest.mark.parametrize("directory", HIDDEN)
def test_no_host_directories_sabotaged(weakened: Jobs, directory: str) -> None:
    with pytest.raises(AssertionError, match="a directory of the host was seen"):
        check_canary(weakened.without("host-directories"), directory)


def test_read_only_root(confined: Jobs) -> None:
    mounted = [place for place in confined.ask(MOUNTED) if place not in OWN]
    assert "/" in mounted
    check_read_only(confined, [*mounted, "/etc", "/dev"])


def test_read_only_root_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="it is not read-only"):
        check_read_only(weakened.without("read-only-root"), ["/"])


def test_read_only_programs(confined: Jobs) -> None:
    check_read_only(confined, PROGRAMS)


def test_read_only_programs_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="it is not read-only"):
        check_read_only(weakened.without("read-only-usr"), PROGRAMS)
