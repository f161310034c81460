"""The controllers on a real hierarchy where this host has one, and the files' forms by example."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookhold_exec.cgroup import (
    CpuAcctV1,
    CpuV2,
    Finding,
    Group,
    IoV2,
    MemoryV1,
    MemoryV2,
    PidsV1,
    PidsV2,
    UnifiedController,
    find,
)


def place_of(controller: str) -> Path:
    [found] = [each for each in find() if each.controller == controller]
    assert found.place is not None
    return Path(found.place[2])


@pytest.fixture
def made(request: pytest.FixtureRequest) -> Iterator[Path]:
    path = place_of(request.param) / f"rookhold-test-{os.getpid()}"
    path.mkdir()
    yield path
    path.rmdir()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files as the kernel shows them, for the forms that this host may lack."""
    shown = {
        "memory.max": "max\n",
        "memory.high": "1048576\n",
        "memory.oom.group": "0\n",
        "memory.events": "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\noom_group_kill 1\n",
        "memory.peak": "4096\n",
        "cgroup.events": "populated 1\nfrozen 0\n",
        "cgroup.procs": "12\n34\n",
        "cgroup.controllers": "cpu memory pids\n",
        "cgroup.subtree_control": "\n",
        "cgroup.kill": "",
        "pids.max": "32\n",
        "pids.events": "max 7\n",
        "cpu.max": "max 100000\n",
        "cpu.stat": "usage_usec 1234\nuser_usec 1000\nsystem_usec 234\n",
        "io.max": "8:16 rbps=2097152 wbps=max riops=max wiops=120\n",
        "io.stat": "8:16 rbytes=1459200 wbytes=314773504\n8:0 rbytes=1 wbytes=0\n",
    }
    for name, text in shown.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_importing_cgroupspy_raises_no_warning() -> None:
    code = "import cgroupspy, cgroupspy.controllers, cgroupspy.interfaces"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_whole_hierarchy_is_never_read() -> None:
    code = (
        "import sys, rookhold_exec.cgroup, rookhold_exec.probe;"
        "assert not {'cgroupspy.trees', 'cgroupspy.nodes'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_values_are_read_in_their_own_types(tree: Path) -> None:
    memory, pids = MemoryV2(Group(tree)), PidsV2(Group(tree))
    assert (memory.max, memory.high, memory.oom_group, memory.peak) == (None, 2**20, False, 4096)
    assert memory.memory_events["oom_kill"] == 1
    assert memory.procs == [12, 34]
    assert memory.events == {"populated": 1, "frozen": 0}
    assert memory.controllers == {"cpu", "memory", "pids"}
    assert memory.subtree_control == frozenset()
    assert (pids.max, pids.pids_events) == (32, {"max": 7})
    assert CpuV2(Group(tree)).max == (None, 100_000)
    assert CpuV2(Group(tree)).stat["usage_usec"] == 1234
    assert IoV2(Group(tree)).max == {
        "8:16": {"rbps": 2_097_152, "wbps": None, "riops": None, "wiops": 120}
    }
    assert IoV2(Group(tree)).stat["8:0"] == {"rbytes": 1, "wbytes": 0}


def test_values_are_written_in_the_kernels_form(tree: Path) -> None:
    memory, pids, cpu, io = (each(Group(tree)) for each in (MemoryV2, PidsV2, CpuV2, IoV2))

    def written(name: str) -> str:
        return (tree / name).read_text()

    memory.max = 64 << 20
    assert written("memory.max") == "67108864"
    memory.max = None
    assert written("memory.max") == "max"
    memory.oom_group = True
    assert written("memory.oom.group") == "1"
    memory.subtree_control = {"+pids", "+memory"}
    assert written("cgroup.subtree_control") == "+memory +pids"
    memory.kill = True
    assert written("cgroup.kill") == "1"
    pids.max = 16
    assert written("pids.max") == "16"
    cpu.max = (50_000, 100_000)
    assert written("cpu.max") == "50000 100000"
    cpu.max = (None, 100_000)
    assert written("cpu.max") == "max 100000"
    io.max = {"8:16": {"rbps": 1, "wbps": None}}
    assert written("io.max") == "8:16 rbps=1 wbps=max"


@pytest.mark.parametrize(
    ("controller", "name"),
    [(MemoryV2, "memory_events"), (MemoryV2, "peak"), (PidsV2, "pids_events"), (CpuV2, "stat")],
)
def test_counters_cannot_be_written(
    tree: Path, controller: type[UnifiedController], name: str
) -> None:
    with pytest.raises(RuntimeError):
        setattr(controller(Group(tree)), name, {})


def test_the_kill_file_cannot_be_read(tree: Path) -> None:
    with pytest.raises(RuntimeError):
        _ = MemoryV2(Group(tree)).kill


def test_a_file_that_the_kernel_lacks_is_an_os_error(tree: Path) -> None:
    (tree / "memory.peak").unlink()
    with pytest.raises(FileNotFoundError):
        _ = MemoryV2(Group(tree)).peak


@pytest.mark.root
@pytest.mark.groups("v1:memory")
@pytest.mark.parametrize("made", ["memory"], indirect=True)
def test_version_1_memory_really_takes_its_limit(made: Path) -> None:
    memory = MemoryV1(Group(made))
    memory.limit_in_bytes = 32 << 20
    assert memory.limit_in_bytes == 32 << 20
    assert memory.oom_control["oom_kill"] == 0
    assert memory.max_usage_in_bytes == 0
    assert memory.tasks == []


@pytest.mark.root
@pytest.mark.groups("v1:pids")
@pytest.mark.parametrize("made", ["pids"], indirect=True)
def test_version_1_pids_really_takes_its_limit(made: Path) -> None:
    pids = PidsV1(Group(made))
    assert pids.max is None
    pids.max = 9
    assert (pids.max, pids.current, pids.pids_events) == (9, 0, {"max": 0})
    pids.max = None
    assert (made / "pids.max").read_text() == "max\n"
    with pytest.raises(OSError) as refused:
        pids.max = -5
    assert refused.value.errno == errno.EINVAL


@pytest.mark.root
@pytest.mark.groups("v1:cpuacct")
@pytest.mark.parametrize("made", ["cpuacct"], indirect=True)
def test_version_1_cpu_time_is_counted(made: Path) -> None:
    cpu = CpuAcctV1(Group(made))
    assert cpu.usage == 0
    joined = f"echo 0 > '{made}/tasks'; for i in 1 2 3 4 5 6 7 8 9; do :; done"
    subprocess.run(["/bin/sh", "-c", joined], check=True, timeout=60)
    assert cpu.usage > 0


@pytest.mark.root
@pytest.mark.groups("v2")
@pytest.mark.parametrize("made", ["v2"], indirect=True)
def test_version_2_has_its_core_files(made: Path) -> None:
    group, cpu = UnifiedController(Group(made)), CpuV2(Group(made))
    assert group.events == {"populated": 0, "frozen": 0}
    assert group.procs == []
    assert group.subtree_control == frozenset()
    assert cpu.stat["usage_usec"] == 0
    process = subprocess.Popen(["/bin/sleep", "600"])
    try:
        group.procs = [process.pid]
        assert group.procs == [process.pid]
        assert group.events["populated"] == 1
        group.kill = True
        assert process.wait(60) == -9
    finally:
        process.kill()
        process.wait()


@pytest.mark.root
@pytest.mark.groups("v2")
@pytest.mark.parametrize("made", ["v2"], indirect=True)
def test_version_2_controllers_really_take_their_limits(made: Path) -> None:
    """With whatever controllers the unified hierarchy of this host has, if only a minor one."""
    parent = UnifiedController(Group(made.parent))
    wanted = {"memory": (MemoryV2, 64 << 20), "pids": (PidsV2, 9)}
    for name in wanted.keys() & parent.subtree_control:
        controller, limit = wanted[name]
        group = controller(Group(made))
        assert group.max is None
        group.max = limit
        assert group.max == limit
    for path in made.iterdir():
        assert path.name.partition(".")[0] in {"cgroup", "cpu", "io", "memory", "irq"} | set(
            parent.subtree_control
        )


def test_findings_name_a_place_or_a_reason() -> None:
    found = find()
    assert [each.controller for each in found] == ["memory", "cpuacct", "pids", "v2"]
    for each in found:
        assert isinstance(each, Finding)
        assert (each.place is None) == bool(each.why)


def test_nothing_is_found_where_nothing_is_mounted() -> None:
    assert [each.place for each in find("", "")] == [None] * 4
    assert all(each.why for each in find("", ""))
