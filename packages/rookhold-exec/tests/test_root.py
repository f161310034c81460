"""The root that is reviewed: only that directory, no mount below it, nothing written, no power."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import small_rootfs

from rookhold_exec import unshare
from rookhold_exec.launcher import root
from rookhold_exec.launcher.kernel import (
    MS_BIND,
    MS_NODEV,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    mount,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.linux_ns, pytest.mark.root]


def in_child(work: Callable[[], object]) -> object:
    """Run `work` in a child with a mount namespace of its own; return what it returned."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            unshare.unshare(unshare.CLONE_NEWNS)
            mount(None, b"/", None, MS_REC | MS_PRIVATE, b"")
            answer = json.dumps(work())
        except BaseException as error:  # noqa: BLE001 - the parent shows it
            answer = json.dumps(repr(error))
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        text = file.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def entered(directory: Path, *, read_only: bool = True) -> None:
    fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    root.enter_rootfs(fd, privileged=True, read_only=read_only)
    os.close(fd)


def refused(work: Callable[[], object]) -> int | None:
    try:
        work()
    except OSError as error:
        return error.errno
    return None


@pytest.fixture
def reviewed(tmp_path: Path) -> Path:
    return small_rootfs.make(tmp_path / "root fs")


def test_it_is_the_whole_root_and_the_host_is_gone(reviewed: Path) -> None:
    def work() -> object:
        entered(reviewed)
        return sorted(os.listdir("/")), Path("/etc/hosts").read_text()

    names = sorted({path.name for path in reviewed.iterdir()})
    assert in_child(work) == [names, "127.0.0.1 localhost\n"]


def test_a_mount_below_it_is_not_taken_along(reviewed: Path) -> None:
    def work() -> object:
        target = reviewed / "usr/lib"
        mount(b"planted", os.fsencode(target), b"tmpfs", MS_NODEV, b"size=64k")
        (target / "secret").write_text("of the host")
        entered(reviewed)
        return os.listdir("/usr/lib")

    assert in_child(work) == []


def test_nobody_writes_in_it_or_gains_by_it(reviewed: Path) -> None:
    def work() -> object:
        entered(reviewed)
        flags = os.statvfs("/").f_flag
        return [
            refused(lambda: Path("/etc/new").write_text("")),
            refused(lambda: Path("/dev/new").write_text("")),
            bool(flags & os.ST_RDONLY),
            bool(flags & os.ST_NOSUID),
            bool(flags & os.ST_NODEV),
            bool(os.statvfs("/dev").f_flag & os.ST_NOEXEC),
        ]

    assert in_child(work) == [30, 30, True, True, True, True]


def test_without_the_control_it_can_be_written(reviewed: Path) -> None:
    def work() -> object:
        entered(reviewed, read_only=False)
        return refused(lambda: Path("/etc/new").write_text(""))

    assert in_child(work) is None


def test_without_the_control_a_root_that_lies_read_only_is_not_taken_for_the_control(
    reviewed: Path,
) -> None:
    def work() -> object:
        target = os.fsencode(reviewed)
        mount(target, target, None, MS_BIND, b"")
        mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY, b"")
        entered(reviewed, read_only=False)
        return refused(lambda: Path("/etc/new").write_text(""))

    assert in_child(work) is None


def test_its_devices_are_its_own_and_few(reviewed: Path) -> None:
    (reviewed / "dev/planted").write_text("of the reviewed root")

    def work() -> object:
        entered(reviewed)
        made = {entry.name: os.lstat(entry.path) for entry in os.scandir("/dev")}
        devices = {name: found.st_rdev for name, found in made.items() if found.st_rdev}
        return sorted(made), devices, os.listdir("/dev/.empty")

    names, devices, empty = in_child(work)
    assert set(names) == {*devices, ".empty", "fd", "shm", "stderr", "stdin", "stdout"}
    assert devices == {
        name: os.makedev(major, minor)
        for name, (major, minor) in {
            "full": (1, 7),
            "null": (1, 3),
            "random": (1, 8),
            "tty": (5, 0),
            "urandom": (1, 9),
            "zero": (1, 5),
        }.items()
    }
    assert empty == []


@pytest.mark.parametrize("name", root.MOUNT_POINTS)
@pytest.mark.parametrize("instead", ["nothing", "file", "link"])
def test_a_missing_mount_point_is_a_clear_refusal(reviewed: Path, name: str, instead: str) -> None:
    (reviewed / name).rmdir()
    if instead == "file":
        (reviewed / name).write_text("")
    if instead == "link":
        (reviewed / name).symlink_to("etc")
    answer = str(in_child(lambda: entered(reviewed)))
    assert answer.startswith("RootfsError")
    assert f"/{name} is" in answer
    assert stat.S_ISDIR((reviewed / "etc").stat().st_mode)


def test_what_is_mounted_is_what_a_job_is_said_to_have(reviewed: Path) -> None:
    def work() -> object:
        expected = sorted(place.decode() for place in root.mount_points(privileged=True))
        os.mkdir(reviewed / "look")
        entered(reviewed)
        mount(b"proc", b"/proc", b"proc", 0, b"")
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return sorted({line.split()[4] for line in lines} - {"/proc"}) == expected

    assert in_child(work) is True
