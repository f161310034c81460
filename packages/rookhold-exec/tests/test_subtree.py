"""The group that a launcher's groups are made in: below the root group, or emptied if delegated."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from reviewed import VERSION_2, surveyed

from rookhold_exec.cgroup.discovery import find, hierarchies
from rookhold_exec.launcher import subtree

if TYPE_CHECKING:
    from collections.abc import Iterator


def unified() -> Path:
    """Return where version 2 is mounted."""
    [top] = [
        each.mount_point
        for each in hierarchies(Path("/proc/self/mountinfo").read_text("utf-8"))
        if each.version == 2
    ]
    return Path(top)


@pytest.fixture
def unit() -> Iterator[Path]:
    """Make a group like that of a service."""
    place = find()[-1].place
    assert place is not None
    made = Path(place[2])
    made = (made if made.exists() else made.parent) / f"test-{os.getpid()}.service"
    made.mkdir()
    yield made
    for below in sorted(made.rglob("*"), reverse=True):
        if below.is_dir():
            below.rmdir()
    made.rmdir()


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "600"])
    yield process.pid
    process.send_signal(signal.SIGKILL)
    process.wait()


def delegate(unit: Path) -> None:
    os.setxattr(unit, "user.delegate", b"1")


def test_only_a_root_group_has_no_type(tmp_path: Path) -> None:
    assert subtree.is_root_group(str(tmp_path))
    (tmp_path / "cgroup.type").write_text("domain\n")
    assert not subtree.is_root_group(str(tmp_path))


def test_in_a_container_the_group_that_looks_like_the_root_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroup.type").write_text("domain\n")
    assert not subtree.is_delegated(str(tmp_path), "/")  # one below it
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(tmp_path))
    assert subtree.is_delegated(str(tmp_path), "/")
    assert not subtree.is_delegated(str(tmp_path), "/user.slice/session-1.scope")


def test_the_root_group_of_the_host_is_nobody_s_to_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(tmp_path))
    assert not subtree.is_delegated(str(tmp_path), "/")


@pytest.mark.root
@pytest.mark.groups("v2:v2")
def test_a_group_that_systemd_delegated_says_so(unit: Path) -> None:
    assert not subtree.is_delegated(str(unit), "/elsewhere")
    delegate(unit)
    assert subtree.is_delegated(str(unit), "/elsewhere")


@pytest.mark.root
@pytest.mark.groups("v2:v2")
def test_a_delegated_group_is_emptied_into_its_leaf(unit: Path, sleeper: int) -> None:
    delegate(unit)
    (unit / "cgroup.procs").write_text(str(sleeper))
    assert subtree.prepare(str(unit)) == ""
    assert (unit / "cgroup.procs").read_text() == ""
    assert (unit / subtree.LEAF / "cgroup.procs").read_text().split() == [str(sleeper)]
    assert subtree.prepare(str(unit)) == ""
    os.kill(sleeper, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper, os.WEXITED | os.WNOWAIT)


@pytest.mark.root
@pytest.mark.groups("v2:v2")
def test_what_runs_in_somebody_else_s_group_stays_there(unit: Path, sleeper: int) -> None:
    (unit / "cgroup.procs").write_text(str(sleeper))
    assert subtree.prepare(str(unit)) == ""
    assert (unit / "cgroup.procs").read_text().split() == [str(sleeper)]
    os.kill(sleeper, signal.SIGKILL)
    os.waitid(os.P_PID, sleeper, os.WEXITED | os.WNOWAIT)


JOB = """
import json, os, sys
from pathlib import Path
from reviewed import settings
from rookhold_exec.backends.namespaces import Namespaces
from rookhold_exec.cgroup.discovery import find
from rookhold_exec.testing import Harness
told = json.loads(sys.argv[1])
Path(sys.argv[2], "cgroup.procs").write_text(str(os.getpid()))
told["found"]["places"] = [find()[-1].place]
harness = Harness(Namespaces(settings(surveyed=told, node="none", bash="none"), ""))
harness.do(harness.executor.open())
report = harness.run("python", "print(1)").report
print(json.dumps([told["found"]["places"][0][2], list(report.provenance.controls),
                  Path("/proc/self/cgroup").read_text().strip()]))
harness.close()
"""


def run_in(group: Path) -> tuple[str, list[str], str]:
    """Run the backend from a process in `group`: its place, the controls seen, where it ended."""
    [kind] = VERSION_2.values
    done = subprocess.run(
        [sys.executable, "-c", JOB, json.dumps(surveyed(kind)), group],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    place, controls, where = json.loads(done.stdout)
    return place, controls, where


class TestWhereAServerIs:
    """The whole road, from groups like those in which operators start a server."""

    pytestmark = VERSION_2.marks

    def test_from_a_delegated_unit_it_moves_to_a_leaf_and_jobs_are_beside_it(
        self, unit: Path
    ) -> None:
        delegate(unit)
        place, controls, where = run_in(unit)
        assert place == str(unit)
        assert {"cgroup-memory", "cgroup-pids", "cgroup-cpu"} <= set(controls)
        assert where == f"0::/{unit.relative_to(unified())}/{subtree.LEAF}"
        assert [each.name for each in unit.iterdir() if each.is_dir()] == [subtree.LEAF]

    def test_from_the_root_group_jobs_are_in_a_group_of_their_own(self) -> None:
        place, controls, where = run_in(unified())
        own = unified() / subtree.OWN
        assert place == str(own)
        assert {"cgroup-memory", "cgroup-pids", "cgroup-cpu"} <= set(controls)
        assert where == "0::/"
        assert not [each for each in own.iterdir() if each.is_dir()]
        own.rmdir()

    def test_from_a_group_that_is_not_ours_an_ancestor_is_used(self, unit: Path) -> None:
        place, controls, where = run_in(unit)
        assert Path(place) in (unit.parent, unit.parent / subtree.OWN)
        assert {"cgroup-memory", "cgroup-pids", "cgroup-cpu"} <= set(controls)
        assert where == f"0::/{unit.relative_to(unified())}"
