"""The limits of version 2, on directories that fill themselves as the kernel's do.

Hosts whose version 1 hierarchies hold these controllers cannot have them in version 2 as well; what
version 2 does there is in `test_groups`.
"""

import os
from pathlib import Path

import pytest

from rookhold_exec.launcher.group import CPU, MEMORY, PIDS
from rookhold_exec.launcher.groups import Groups, Place

MIB = 1024 * 1024
FILES = (
    ("cgroup.controllers", "cpu memory pids"),
    ("cgroup.subtree_control", ""),
    ("cgroup.procs", ""),
    ("cgroup.kill", ""),
    ("memory.max", "max"),
    ("memory.swap.max", "max"),
    ("memory.oom.group", "0"),
    ("memory.events", "low 0\nhigh 0\nmax 3\noom 1\noom_kill 2\n"),
    ("memory.current", "4096\n"),
    ("memory.peak", "8192\n"),
    ("pids.max", "max"),
    ("pids.events", "max 5\n"),
    ("cpu.stat", "usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n"),
)


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "memory").mkdir()
    make, remove = os.mkdir, os.rmdir

    def at(path: str, dir_fd: int) -> Path:
        return Path(f"/proc/self/fd/{dir_fd}").readlink() / path

    def mkdir(path: str, mode: int = 0o777, *, dir_fd: int) -> None:
        make(path, mode, dir_fd=dir_fd)
        for name, text in FILES:
            (at(path, dir_fd) / name).write_text(text)

    def rmdir(path: str, *, dir_fd: int) -> None:
        where = at(path, dir_fd)
        if not any(each.is_dir() for each in where.iterdir()):
            for each in where.iterdir():
                each.unlink()
        remove(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", mkdir)
    monkeypatch.setattr(os, "rmdir", rmdir)
    for name, text in FILES:
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_payload_has_the_limits_and_init_has_none(top: Path) -> None:
    groups = Groups([("v2", 2, str(top))], "rookhold-1-1")
    job = groups.create("x", mem_bytes=64 * MIB, pids=16)
    payload, init = (top / "rookhold-1-1/job-x" / name for name in ("payload", "init"))
    assert groups.controls == job.controls == (CPU, MEMORY, PIDS)
    assert (payload / "memory.max").read_text() == str(64 * MIB)
    assert (payload / "memory.swap.max").read_text() == "0ax"  # a plain file keeps its end
    assert (payload / "memory.oom.group").read_text() == "1"
    assert (payload / "pids.max").read_text() == "16x"
    assert (init / "memory.max").read_text() == "max"
    assert (init / "pids.max").read_text() == "max"
    for level in (top, top / "rookhold-1-1", top / "rookhold-1-1/job-x"):
        assert (level / "cgroup.subtree_control").read_text().startswith("+")
    assert (payload / "cgroup.subtree_control").read_text() == ""
    assert job.remove()
    job.close()
    groups.close()
    assert not (top / "rookhold-1-1").exists()


def test_counters_are_read_from_their_lines(top: Path) -> None:
    groups = Groups([("v2", 2, str(top))], "rookhold-1-1")
    job = groups.create("x", mem_bytes=64 * MIB, pids=16)
    assert (job.oom_kills(), job.pids_refused(), job.cpu_usec()) == (2, 5, 1234)
    assert (job.memory_now(), job.memory_peak()) == (4096, 8192)
    job.kill()
    assert (top / "rookhold-1-1/job-x/payload/cgroup.kill").read_text() == "1"
    job.close()
    groups.close()


@pytest.mark.parametrize(("told", "kills"), [("oom 0", 0), ("oom 1", 2), ("low 0", 0)])
def test_a_kill_counts_only_if_the_group_reached_its_own_limit(
    top: Path, told: str, kills: int
) -> None:
    groups = Groups([("v2", 2, str(top))], "rookhold-1-1")
    job = groups.create("x", mem_bytes=64 * MIB, pids=16)
    events = top / "rookhold-1-1/job-x/payload/memory.events"
    events.write_text(f"{told}\noom_kill 2\n")
    assert job.oom_kills() == kills
    job.close()
    groups.close()


def test_only_a_process_in_the_payload_is_seen(top: Path) -> None:
    groups = Groups([("v2", 2, str(top))], "rookhold-1-1")
    job = groups.create("x", mem_bytes=64 * MIB, pids=1024)
    (top / "rookhold-1-1/job-x/payload/pids.max").write_text("1024\n")
    assert job.seen(b"4:memory:/\n0::/a/rookhold-1-1/job-x/payload\n") == job.controls
    assert job.seen(b"0::/../rookhold-1-1/job-x/payload\n") == job.controls
    for elsewhere in (
        b"0::/",
        b"0::/rookhold-1-1/job-x/init",
        b"0::/rookhold-1-1/job-y/payload",
    ):
        assert job.seen(elsewhere + b"\n") == ()
    job.close()
    groups.close()


def test_what_version_1_does_is_left_to_it(top: Path) -> None:
    places: list[Place] = [("memory", 1, str(top / "memory")), ("v2", 2, str(top))]
    groups = Groups(places, "rookhold-1-1")
    assert groups._v2_controls == {CPU, PIDS}
    groups.close()
