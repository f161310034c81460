import importlib.metadata
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rookhold_exec import unshare

NAMESPACES = {
    "mnt": unshare.CLONE_NEWNS,
    "cgroup": unshare.CLONE_NEWCGROUP,
    "uts": unshare.CLONE_NEWUTS,
    "ipc": unshare.CLONE_NEWIPC,
    "user": unshare.CLONE_NEWUSER,
    "net": unshare.CLONE_NEWNET,
}
needs_root = pytest.mark.root


def in_child(work: Callable[[], object]) -> str:
    """Run `work` in a forked child; return what it returned, as text."""
    read, write = os.pipe()
    pid = os.fork()
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


def link(name: str, pid: int | str = "self") -> str:
    return str(Path(f"/proc/{pid}/ns/{name}").readlink())


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("name", NAMESPACES)
def test_unsharing_changes_that_namespace_and_no_other(name: str) -> None:
    def work() -> object:
        before = {each: link(each) for each in NAMESPACES}
        unshare.unshare(NAMESPACES[name])
        return [each for each in NAMESPACES if link(each) != before[each]]

    assert in_child(work) == str([name])


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("make", [unshare.clone, unshare.clone3])
def test_a_clone_is_born_in_namespaces_of_its_own_as_pid_1(make: Callable[[int], int]) -> None:
    flags = unshare.CLONE_NEWPID | unshare.CLONE_NEWNET | unshare.CLONE_NEWUTS
    read, write = os.pipe()
    pid = make(flags)
    if pid == 0:
        os.write(write, f"{os.getpid()} {link('net')} {link('mnt')}".encode())
        os._exit(3)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        inside, net, mnt = file.read().decode().split()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    assert (inside, mnt) == ("1", link("mnt"))
    assert net != link("net")


@pytest.mark.parametrize("make", [unshare.clone, unshare.clone3])
def test_a_clone_without_flags_is_a_fork(make: Callable[[int], int]) -> None:
    pid = make(0)
    if pid == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    assert pid > 0
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


@pytest.mark.root
@needs_root
def test_a_namespace_can_be_entered_by_its_descriptor() -> None:
    read, write = os.pipe()
    pid = unshare.clone(unshare.CLONE_NEWUTS)
    if pid == 0:
        os.write(write, b".")
        signal.pause()
    os.read(read, 1)
    os.close(read)
    os.close(write)

    def work() -> object:
        with Path(f"/proc/{pid}/ns/uts").open("rb") as file:
            unshare.setns(file.fileno(), unshare.CLONE_NEWUTS)
        return link("uts") == link("uts", pid)

    entered = in_child(work)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert entered == "True"


def test_failures_are_os_errors_with_their_number() -> None:
    with pytest.raises(OSError) as bad_flag:
        unshare.unshare(0x1)
    assert bad_flag.value.errno == 22
    with pytest.raises(OSError) as no_descriptor:
        unshare.setns(-1, 0)
    assert no_descriptor.value.errno == 9
    for make in (unshare.clone, unshare.clone3):
        with pytest.raises(OSError) as together:
            make(unshare.CLONE_NEWNS | unshare.CLONE_FS)
        assert together.value.errno == 22
    with pytest.raises(OSError):
        unshare.clone3(0, cgroup=2**30)


def test_the_flags_are_those_of_the_kernel() -> None:
    ours = {name: value for name, value in vars(unshare).items() if name.startswith("CLONE_")}
    theirs = {name: getattr(os, name) for name in ours if hasattr(os, name)}  # Python 3.12
    assert {name: ours[name] for name in theirs} == theirs
    every_namespace = sum(NAMESPACES.values()) | unshare.CLONE_NEWPID
    assert every_namespace == 0x7E020000
    assert len(set(ours.values())) == len(ours)


def test_it_loads_with_nothing_but_a_few_standard_modules() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from rookhold_exec import unshare;"
        "print(sorted({'msgspec', 'cgroupspy', 'asyncio', 'json', 'pathlib', 'logging'}"
        " & set(sys.modules)))"
    )
    source = Path(unshare.__file__).parents[1]
    argv = [sys.executable, "-I", "-S", "-c", code, str(source)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


class TestCanary:
    """Reasons not to use the package python-unshare, watched for as far as one can offline.

    The first is a fact about Python itself, and the one that the decision rests on. Whether a new
    release has come is something only an index knows: the second looks at whatever is installed.
    """

    def test_python_no_longer_has_the_call_that_its_last_release_is_built_on(self) -> None:
        import ctypes

        assert not hasattr(ctypes.pythonapi, "Py_InitModule4")
        assert not hasattr(ctypes.pythonapi, "Py_InitModule4_64")
        assert hasattr(ctypes.pythonapi, "PyModule_Create2")

    def test_the_package_is_not_here_or_does_not_import(self) -> None:
        """Fails the day somebody installs a release that works: then decision 0001 is due."""
        try:
            version = importlib.metadata.version("python-unshare")
        except importlib.metadata.PackageNotFoundError:
            version = None
        if version is None:
            assert importlib.util.find_spec("unshare") is None
            return
        done = subprocess.run(
            [sys.executable, "-c", "import unshare"], capture_output=True, timeout=60, check=False
        )
        assert done.returncode != 0, f"python-unshare {version} imports"
