"""Out of the file system: mounts, roots, namespaces that would allow them."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from hostile.target import Target

pytestmark = pytest.mark.x86_64


def test_a_mount_is_refused_here_and_in_a_new_user_namespace(target: Target) -> None:
    told = target.ask("""
MOUNT, UNSHARE, SETNS = 165, 272, 308
os.mkdir("/tmp/at")
told["tmpfs"] = called(MOUNT, b"none", b"/tmp/at", b"tmpfs", 0, None)
told["proc"] = called(MOUNT, b"none", b"/tmp/at", b"proc", 0, None)
told["bind"] = called(MOUNT, b"/", b"/tmp/at", None, 4096, None)
told["writable root"] = called(MOUNT, None, b"/", None, 32 | 4096, None)
def inside():
    step = called(UNSHARE, CLONE["user"] | CLONE["mount"])
    return step if step != "done" else called(MOUNT, b"none", b"/tmp/at", b"tmpfs", 0, None)
told["in a namespace of its own"] = apart(inside)
""")
    assert told == dict.fromkeys(told, "EPERM")
    assert len(told) == 5


def test_nothing_is_unmounted_to_see_what_is_below(target: Target) -> None:
    told = target.ask("""
UMOUNT2, UNSHARE = 166, 272
for path in (b"/proc", b"/work", b"/tmp", b"/dev/shm", b"/dev", b"/"):
    told[path.decode()] = called(UMOUNT2, path, 2)
def inside():
    step = called(UNSHARE, CLONE["user"] | CLONE["mount"])
    return step if step != "done" else called(UMOUNT2, b"/tmp", 2)
told["in a namespace of its own"] = apart(inside)
""")
    assert told == dict.fromkeys(told, "EPERM")


def test_the_new_mount_interface_is_refused(target: Target) -> None:
    told = target.ask("""
OPEN_TREE, MOVE_MOUNT, FSOPEN, FSPICK, MOUNT_SETATTR = 428, 429, 430, 433, 442
HERE = -100
told["fsopen"] = called(FSOPEN, b"tmpfs", 0)
told["fspick"] = called(FSPICK, HERE, b"/", 0)
told["open_tree"] = called(OPEN_TREE, HERE, b"/", 1)
told["open_tree without a copy"] = called(OPEN_TREE, HERE, b"/tmp", 0)
told["move_mount"] = called(MOVE_MOUNT, HERE, b"/work", HERE, b"/tmp", 0)
told["mount_setattr"] = called(MOUNT_SETATTR, HERE, b"/", 0, bytes(32), 32)
""")
    assert set(told.values()) <= target.on({"EPERM"}, gvisor={"ENOSYS", "EPERM"}), told


def test_the_root_cannot_be_changed(target: Target) -> None:
    told = target.ask("""
CHROOT, PIVOT_ROOT, UNSHARE = 161, 155, 272
told["chroot"] = apart(called, CHROOT, b"/tmp")
told["pivot_root"] = apart(called, PIVOT_ROOT, b"/tmp", b"/tmp")
def inside():
    step = called(UNSHARE, CLONE["user"])
    return step if step != "done" else called(CHROOT, b"/tmp")
told["chroot in a user namespace"] = apart(inside)
""")
    assert told == dict.fromkeys(told, "EPERM")


def test_a_chroot_is_not_left_by_way_of_an_open_directory(target: Target) -> None:
    told = target.ask("""
CHROOT = 161
os.mkdir("/tmp/jail")
outside = os.open("/", os.O_RDONLY)
os.fchdir(outside)
try:
    os.chroot("/tmp/jail")
    for _ in range(64):
        os.chdir("..")
    os.chroot(".")
except OSError:
    pass
told["top"] = sorted(os.listdir("/"))
told["above"] = os.path.samefile("/", "/../../../..")
""")
    assert "work" in told["top"]
    assert told["above"]


KINDS = ("mount", "cgroup", "uts", "ipc", "user", "pid", "network", "time")


@pytest.fixture(scope="module")
def unshared(target: Target) -> dict[str, str]:
    """What came of unsharing each kind, by children of one job."""
    told: dict[str, str] = target.ask("""
for kind, flag in CLONE.items():
    told[kind] = apart(called, 272, flag)
""")
    return told


@pytest.mark.parametrize("kind", KINDS)
def test_no_namespace_is_made_by_unshare(unshared: dict[str, str], kind: str) -> None:
    assert unshared[kind] == "EPERM"


def test_no_namespace_is_made_by_clone_whatever_else_its_flags_say(target: Target) -> None:
    told = target.ask("""
CLONE_CALL, MOUNT, SETHOSTNAME = 56, 165, 170
os.mkdir("/tmp/at")
def born(flags):
    result = libc.syscall(CLONE_CALL, ctypes.c_ulong(flags), None, None, None, None)
    if result == 0:
        called(MOUNT, b"none", b"/tmp/at", b"tmpfs", 0, None)
        called(SETHOSTNAME, b"owned", 5)
        os._exit(0)
    if result > 0:
        os.waitpid(result, 0)
        return "done"
    return errno.errorcode[ctypes.get_errno()]
for kind, flag in CLONE.items():
    if kind != "time":
        told[kind] = born(flag | signal.SIGCHLD)
        told[kind + " with an upper half"] = born(flag | signal.SIGCHLD | 1 << 32)
told["all"] = born(0x7E020000 | signal.SIGCHLD)
told["as a sibling"] = born(0x00008000 | signal.SIGCHLD)
told["none"] = born(signal.SIGCHLD)
""")
    assert told.pop("none") == "done"
    if not target.gvisor:  # whose kernel makes some, of its own
        assert told == dict.fromkeys(told, "EPERM")
    assert platform.node() != "owned"
    assert target.before.left_between_jobs() == []


def test_clone3_is_missing_whatever_is_asked_of_it(target: Target) -> None:
    told = target.ask("""
CLONE3 = 435
def born(flags, cgroup=0):
    asked = (ctypes.c_uint64 * 11)(flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, cgroup)
    result = libc.syscall(CLONE3, asked, ctypes.c_long(88))
    if result == 0:
        os._exit(0)
    if result > 0:
        os.waitpid(result, 0)
        return "done"
    return errno.errorcode[ctypes.get_errno()]
told["user"] = born(CLONE["user"])
told["time"] = born(CLONE["time"])
told["into a group"] = born(0x200000000, os.open("/", os.O_RDONLY))
""")
    assert told == dict.fromkeys(told, "ENOSYS")


def test_no_other_namespace_is_entered(target: Target) -> None:
    told = target.ask("""
SETNS, PIDFD_OPEN = 308, 434
def entered(path, kind):
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        return errno.errorcode[error.errno]
    return apart(called, SETNS, fd, kind)
for name in ("user", "mnt", "net", "pid", "ipc", "uts", "cgroup"):
    told[name] = entered("/proc/self/ns/" + name, 0)
    told["first " + name] = entered("/proc/1/ns/" + name, 0)
def by_pidfd():
    fd = libc.syscall(PIDFD_OPEN, ctypes.c_long(1), 0)
    return called(SETNS, fd, CLONE["mount"]) if fd >= 0 else errno.errorcode[ctypes.get_errno()]
told["by a descriptor of the first process"] = apart(by_pidfd)
""")
    first = {told.pop(name) for name in list(told) if name.startswith("first ")}
    assert first <= target.on({"ENOENT", "EACCES"}, gvisor={"ENOENT", "EPERM"})
    by_pidfd = told.pop("by a descriptor of the first process")
    assert by_pidfd == target.on("EPERM", gvisor="ENOSYS")
    assert set(told.values()) <= target.on({"EPERM"}, gvisor={"EPERM", "ENOENT"}), told
    assert len(told) == 7


def test_files_are_not_reached_without_their_paths(target: Target) -> None:
    told = target.ask("""
root = os.open("/", os.O_RDONLY)
told["name_to_handle_at"] = called(303, -100, b"/", bytes(132), bytes(4), 0)
told["open_by_handle_at"] = called(304, root, bytes(136), 0)
told["fanotify_init"] = called(300, 0, 0)
told["fanotify_mark"] = called(301, 0, 1, 1, -100, b"/")
""")
    inside = {"ENOSYS", "ENOTSUP", "EPERM"}
    assert set(told.values()) <= target.on({"EPERM"}, gvisor=inside), told
