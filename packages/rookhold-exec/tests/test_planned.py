"""Groups of version 1 that are made after the clone: by one process, joined and read by others."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookhold_exec.cgroup.discovery import places
from rookhold_exec.launcher.group import V1_CONTROL, JobGroup
from rookhold_exec.launcher.groups import Groups, own_name
from rookhold_exec.launcher.planned import PlannedGroup

pytestmark = [pytest.mark.root, pytest.mark.groups("v1:memory", "v1:pids")]
MIB = 1024 * 1024


@pytest.fixture
def groups() -> Iterator[Groups]:
    made = Groups([place for place in places() if place[1] == 1], own_name())
    yield made
    made.close()


def directories(groups: Groups, name: str) -> list[Path]:
    found = [Path(place[2]) / groups.name / name for place in places() if place[1] == 1]
    return [path for path in found if path.exists()]


def plan(groups: Groups, name: str, *, without: frozenset[str] = frozenset()) -> PlannedGroup:
    planned = groups.plan(name, mem_bytes=64 * MIB, pids=16, without=without)
    assert isinstance(planned, PlannedGroup)
    return planned


def test_nothing_is_there_before_it_is_made_and_nothing_after_it_is_removed(groups: Groups) -> None:
    planned = plan(groups, "later")
    assert directories(groups, "job-later") == []
    planned.make()
    assert len(directories(groups, "job-later")) == len(groups.controls)
    assert planned.remove()
    assert directories(groups, "job-later") == []


def test_a_process_that_was_born_before_joins_and_another_sees_it(groups: Groups) -> None:
    planned = plan(groups, "joined")
    told, tell = os.pipe()
    joined, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(told, 1)
        planned.join()
        os.write(say, Path("/proc/self/cgroup").read_bytes())
        os._exit(0)
    planned.make()
    os.write(tell, b"1")
    seen = os.read(joined, 65536)
    os.waitpid(pid, 0)
    for fd in (told, tell, joined, say):
        os.close(fd)
    job = planned.opened()
    assert isinstance(job, JobGroup)
    assert set(job.seen(seen)) == set(planned.controls) == set(groups.controls)
    assert job.cpu_usec() > 0
    job.close()
    assert planned.remove()


def test_what_is_left_out_is_neither_made_nor_joined(groups: Groups) -> None:
    planned = plan(groups, "less", without=frozenset({V1_CONTROL["memory"]}))
    planned.make()
    kinds = {path.parts[4] for path in directories(groups, "job-less")}
    assert "memory" not in kinds
    assert planned.opened().controls == planned.controls
    assert V1_CONTROL["memory"] not in planned.controls
    assert planned.remove()


def test_a_group_that_cannot_be_made_leaves_nothing_once_it_is_removed(groups: Groups) -> None:
    first = plan(groups, "twice")
    first.make()
    second = plan(groups, "twice")
    with pytest.raises(FileExistsError):
        second.make()
    assert second.remove()  # it made nothing, so it removes nothing
    assert len(directories(groups, "job-twice")) == len(groups.controls)
    assert first.remove()
