"""A job's control groups, really made: version 1 where this host has it, and plain version 2."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rookhold_exec import unshare
from rookhold_exec.cgroup.discovery import find, places
from rookhold_exec.launcher.group import CPU, MEMORY, PIDS, JobGroup
from rookhold_exec.launcher.groups import Groups, Place, own_name

pytestmark = [pytest.mark.root, pytest.mark.groups]
MIB = 1024 * 1024


@pytest.fixture
def groups() -> Iterator[Groups]:
    made = Groups(places(), own_name())
    yield made
    made.close()


def fork_into(job: JobGroup) -> int:
    """Fork a child that is in the job's groups: born in those of version 2, joining the others."""
    pid = unshare.clone3(0, cgroup=job.born_in) if job.born_in >= 0 else os.fork()
    if pid == 0:
        try:
            job.join()
        except BaseException:  # noqa: BLE001 - the parent sees the status
            os._exit(70)
    return pid


def in_child(job: JobGroup, work: Callable[[], object]) -> str:
    """Run `work` in a child that is in the job's groups; return what it returned, as text."""
    read, write = os.pipe()
    pid = fork_into(job)
    if pid == 0:
        try:
            os.write(write, str(work()).encode())
        except BaseException as error:  # noqa: BLE001 - the parent shows it
            os.write(write, repr(error).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        text = file.read().decode()
    os.waitpid(pid, 0)
    return text


def own_cgroup() -> bytes:
    return Path("/proc/self/cgroup").read_bytes()


def fill(size: int) -> None:
    data = bytearray(size)
    data[::4096] = b"x" * len(data[::4096])


def directories(name: str) -> list[Path]:
    return [Path(place[2]) / name for place in places() if (Path(place[2]) / name).exists()]


def open_descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def gone(groups: Groups) -> bool:
    return not directories(groups.name)


def test_a_process_that_joined_is_seen_in_every_group(groups: Groups) -> None:
    job = groups.create("seen", mem_bytes=64 * MIB, pids=16)

    assert set(job.controls) == set(groups.controls)
    assert job.seen(own_cgroup()) == ()
    assert in_child(job, lambda: job.seen(own_cgroup()) == job.controls) == "True"
    assert job.remove()
    job.close()


@pytest.mark.groups("pids")
def test_a_limit_that_was_changed_is_not_seen(groups: Groups) -> None:
    job = groups.create("changed", mem_bytes=64 * MIB, pids=16)

    def work() -> object:
        os.pwrite(job._limit[PIDS], b"max", 0)
        return PIDS in job.seen(own_cgroup())

    assert in_child(job, work) == "False"
    assert job.remove()
    job.close()


@pytest.mark.parametrize("control", [CPU, MEMORY, PIDS])
def test_a_control_left_out_is_missing_and_only_that_one(groups: Groups, control: str) -> None:
    job = groups.create("less", mem_bytes=64 * MIB, pids=16, without=frozenset({control}))

    expected = tuple(sorted(set(groups.controls) - {control}))
    assert in_child(job, lambda: job.seen(own_cgroup())) == str(expected)
    assert job.remove()
    job.close()


@pytest.mark.groups("memory")
def test_the_memory_limit_kills_and_says_so(groups: Groups) -> None:
    job = groups.create("memory", mem_bytes=64 * MIB, pids=16)

    pid = fork_into(job)
    if pid == 0:
        fill(256 * MIB)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert job.oom_kills() >= 1  # version 2 counts twice the one that it chose, of a whole group
    assert job.memory_now() < 64 * MIB
    assert job.memory_peak() < 0 or 60 * MIB < job.memory_peak() <= 64 * MIB
    assert job.remove()
    job.close()


@pytest.mark.groups("pids")
def test_the_process_limit_refuses_forks_and_counts_them(groups: Groups) -> None:
    job = groups.create("pids", mem_bytes=64 * MIB, pids=8)

    def work() -> object:
        children = []
        try:
            while len(children) < 50:
                pid = os.fork()
                if pid == 0:
                    signal.pause()
                children.append(pid)
        except BlockingIOError:
            pass
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return len(children)

    assert in_child(job, work) == "7"
    assert job.pids_refused() >= 1
    assert job.remove()
    job.close()


def test_cpu_time_of_every_process_is_summed(groups: Groups) -> None:
    job = groups.create("cpu", mem_bytes=64 * MIB, pids=16)

    def work() -> object:
        pid = os.fork()
        if pid == 0:
            while time.process_time() < 0.2:
                pass
            os._exit(0)
        os.waitpid(pid, 0)
        return job.cpu_usec() >= 200_000

    assert in_child(job, work) == "True"
    assert 200_000 <= job.cpu_usec() < 5_000_000
    assert job.remove()
    job.close()


def test_descriptors_work_from_another_root(groups: Groups, tmp_path: Path) -> None:
    job = groups.create("root", mem_bytes=64 * MIB, pids=16)

    def work() -> object:
        text = own_cgroup()
        os.chroot(tmp_path)
        return job.seen(text) == job.controls, job.cpu_usec() >= 0

    assert in_child(job, work) == "(True, True)"
    assert job.remove()
    job.close()


def test_an_occupied_group_is_removed_when_it_is_empty(groups: Groups) -> None:
    job = groups.create("busy", mem_bytes=64 * MIB, pids=16)
    read, write = os.pipe()
    pid = fork_into(job)
    if pid == 0:
        os.write(write, b"in")
        signal.pause()
    os.read(read, 2)
    os.close(read)
    os.close(write)
    assert not job.remove()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert job.remove()
    job.close()
    assert job.fds == ()


def test_counters_of_a_removed_group_are_unknown_and_not_an_error(groups: Groups) -> None:
    job = groups.create("late", mem_bytes=64 * MIB, pids=16)
    assert job.remove()
    assert job.remove()
    assert (job.cpu_usec(), job.memory_peak(), job.memory_now()) == (-1, -1, -1)
    assert (job.oom_kills(), job.pids_refused(), job.seen(own_cgroup())) == (0, 0, ())
    job.close()


def test_a_failed_creation_leaves_nothing(groups: Groups) -> None:
    before = open_descriptors()
    first = groups.create("twice", mem_bytes=64 * MIB, pids=16)
    with pytest.raises(FileExistsError):
        groups.create("twice", mem_bytes=64 * MIB, pids=16)
    assert directories(f"{groups.name}/job-twice")
    assert first.remove()
    first.close()
    with pytest.raises(OSError):
        groups.create("bad", mem_bytes=64 * MIB, pids=-7)
    assert not directories(f"{groups.name}/job-bad")
    assert open_descriptors() == before


def test_a_supervisor_inherits_its_jobs_descriptors_and_an_exec_closes_them(groups: Groups) -> None:
    job = groups.create("low", mem_bytes=64 * MIB, pids=16)
    assert max(job.fds) < 512 <= min(own for *_, own in groups._parents)
    assert not any(map(os.get_inheritable, job.fds))
    assert job.remove()
    job.close()


def test_closing_removes_the_launchers_own_groups() -> None:
    made = Groups(places(), own_name())
    assert len(directories(made.name)) == len(places())
    made.close()
    assert gone(made)


def test_closing_with_a_job_still_running_kills_it_first() -> None:
    made = Groups(places(), own_name())
    job = made.create("running", mem_bytes=64 * MIB, pids=16)
    pid = fork_into(job)
    if pid == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    reaper = threading.Thread(target=os.waitpid, args=(pid, 0))  # a zombie would occupy the group
    reaper.start()
    job.close()
    made.close()
    reaper.join(30)
    assert not reaper.is_alive()
    assert gone(made)


LEFTOVER = """
    import os, sys, time
    from rookhold_exec import unshare
    from rookhold_exec.cgroup.discovery import places
    from rookhold_exec.launcher.groups import Groups, own_name
    groups = Groups(places(), own_name())
    job = groups.create("left", mem_bytes=64 << 20, pids=16)
    pid = unshare.clone3(0, cgroup=job.born_in) if job.born_in >= 0 else os.fork()
    if pid == 0:
        job.join()
        print(groups.name, os.getpid(), flush=True)
        os.close(1)
        time.sleep(600)
    os.wait()
"""


def test_a_new_launcher_sweeps_what_a_killed_one_left_and_spares_the_living() -> None:
    dead = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(LEFTOVER)], stdout=subprocess.PIPE, text=True
    )
    assert dead.stdout is not None
    name, orphan = dead.stdout.readline().split()
    dead.stdout.close()
    groups = Groups(places(), own_name())
    try:
        groups.sweep()
        assert len(directories(name)) == len(places())
        dead.kill()
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # a zombie, as nobody reaps it
        assert groups.sweep() >= len(places())
        assert not directories(name)
        state = Path(f"/proc/{orphan}/stat")
        assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX"
    finally:
        dead.kill()
        dead.wait()
        groups.close()


def test_two_sweeps_may_meet(groups: Groups) -> None:
    left = [Path(place[2]) / "rookhold-1-1" for place in places()]  # pid 1 has another start time
    for path in left:
        (path / "job-x").mkdir(parents=True)
    threads = [threading.Thread(target=groups.sweep) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(path.exists() for path in left)


def test_a_group_whose_name_is_not_ours_is_never_swept(groups: Groups) -> None:
    strangers = [Path(place[2]) / "rookhold-dev" for place in places()]
    for path in strangers:
        path.mkdir()
    try:
        groups.sweep()
        assert all(path.is_dir() for path in strangers)
    finally:
        for path in strangers:
            path.rmdir()


@pytest.mark.groups("v2")
class TestVersion2:
    """On the unified hierarchy: what it does without controllers, and with those it has."""

    @pytest.fixture
    def place(self) -> Place:
        place = find()[-1].place
        assert place is not None
        return place

    @pytest.fixture
    def unified(self, place: Place) -> Iterator[Groups]:
        made = Groups([place], own_name())
        yield made
        made.close()

    def test_a_payload_is_born_in_its_group_and_seen_there(self, unified: Groups) -> None:
        job = unified.create("born", mem_bytes=64 * MIB, pids=16)
        read, write = os.pipe()
        pid = unshare.clone3(0, cgroup=job.born_in)
        if pid == 0:
            job.join()
            os.write(write, repr(job.seen(own_cgroup())).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as file:
            seen = file.read().decode()
        assert os.waitpid(pid, 0)[1] == 0
        assert seen == repr(job.controls)
        assert CPU in job.controls
        assert job.cpu_usec() > 0
        assert job.remove()
        job.close()

    def test_killing_the_payload_spares_the_supervisor(self, unified: Groups) -> None:
        job = unified.create("kill", mem_bytes=64 * MIB, pids=16)
        payload = unshare.clone3(0, cgroup=job.born_in)
        if payload == 0:
            while True:
                signal.pause()
        init = unshare.clone3(0, cgroup=job.init_in)
        if init == 0:
            while True:
                signal.pause()
        job.kill()
        assert os.waitstatus_to_exitcode(os.waitpid(payload, 0)[1]) == -signal.SIGKILL
        assert os.waitpid(init, os.WNOHANG) == (0, 0)
        os.kill(init, signal.SIGKILL)
        os.waitpid(init, 0)
        assert job.remove()
        job.close()

    def test_the_procs_files_belong_to_the_jobs_uid_and_the_rest_stays_ours(
        self, unified: Groups, place: Place
    ) -> None:
        job = unified.create("owner", mem_bytes=64 * MIB, pids=16, uid=210_000)
        top = Path(place[2]) / unified.name / "job-owner"
        assert (top / "cgroup.procs").stat().st_uid == 210_000
        assert (top / "payload" / "cgroup.procs").stat().st_uid == 210_000
        assert (top / "init" / "cgroup.procs").stat().st_uid == 0
        assert (top / "payload" / "cgroup.max.descendants").stat().st_uid == 0
        assert job.remove()
        job.close()
