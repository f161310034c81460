"""The template root: built once, lived in by the launcher, copied into every job's mount namespace.

There are two. `enter` makes one of the host's own system: a new tmpfs with read-only binds of /usr
and of what /bin, /sbin and /lib* point to, a short list of /etc files, synthetic accounts. Nothing
else of the host is in it. `enter_rootfs` takes the root file system that an operator has reviewed,
read-only, and nothing of the host at all. Either gets a /dev of its own.
"""

from __future__ import annotations

import os
from errno import ENOENT, ENOTDIR
from stat import S_ISDIR

from rookhold_exec.launcher.kernel import (
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOEXEC,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    add_attributes,
    bind_alone,
    bind_read_only,
    mount,
    pivot_root,
    umount_detached,
)

JOB_UID = 1000  # the one account of a job, inside its user namespace
MOUNT_POINTS = ("dev", "proc", "tmp", "work")  # what a job's own file systems are mounted on

_BOUND = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC_FILES = ("ld.so.cache", "localtime", "mime.types", "protocols", "services")
_ETC_LINKS = "alternatives"
_SYNTHETIC = {
    "passwd": "root:x:0:0:root:/:/bin/sh\n"
    f"job:x:{JOB_UID}:{JOB_UID}:job:/tmp:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/:/bin/sh\n",
    "group": f"root:x:0:\njob:x:{JOB_UID}:\nnogroup:x:65534:\n",
    "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_NODES = {"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9, "tty": 0}
_LINKS = {
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_BUILD = "/tmp"  # a mountpoint of our own mount namespace; nobody else sees it
_ETC_FILE_MAX = 4 << 20


class RootfsError(OSError):
    """The root file system of jobs cannot be used as it is."""


def enter(*, privileged: bool, read_only: bool) -> None:
    """Build the root and make it this process's own; the mount namespace is already private."""
    mount(None, b"/", None, MS_REC | MS_PRIVATE, b"")
    mount(b"root", _BUILD.encode(), b"tmpfs", MS_NOSUID, b"size=4m,nr_inodes=4096,mode=0755")
    for name in ("etc", "dev", "proc", "tmp", "work", "workspace"):
        os.mkdir(f"{_BUILD}/{name}", 0o755)
    _bind_programs()
    _fill_etc()
    _settle(privileged=privileged)
    add_attributes(b"/", MOUNT_ATTR_NODEV | (MOUNT_ATTR_RDONLY if read_only else 0))


def enter_rootfs(rootfs: int, *, privileged: bool, read_only: bool) -> None:
    """Make the directory `rootfs` this process's root, with no mount that lies below it.

    Raises RootfsError where a place that a job needs is missing in it: nothing can be made in it.
    """
    for name in MOUNT_POINTS:
        try:
            found = os.stat(name, dir_fd=rootfs, follow_symlinks=False)
        except FileNotFoundError:
            raise RootfsError(ENOENT, f"/{name} is missing") from None
        if not S_ISDIR(found.st_mode):
            raise RootfsError(ENOTDIR, f"/{name} is no directory")
    mount(None, b"/", None, MS_REC | MS_PRIVATE, b"")
    attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (MOUNT_ATTR_RDONLY if read_only else 0)
    bind_alone(rootfs, _BUILD.encode(), attributes, 0 if read_only else MOUNT_ATTR_RDONLY)
    _settle(privileged=privileged)


def mount_points(*, privileged: bool) -> set[bytes]:
    """Return where the reviewed root has mounts before a job adds its own."""
    nodes = () if privileged else _NODES
    return {b"/", b"/dev", *(f"/dev/{name}".encode() for name in nodes)}


def _settle(*, privileged: bool) -> None:
    """Add what every root has, and move into it."""
    _make_dev(privileged=privileged)
    if not privileged:
        # A user namespace may mount a proc of its own only while it can see one that is whole.
        attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY
        bind_read_only(b"/proc", f"{_BUILD}/proc".encode(), attributes)
    os.chdir(_BUILD)
    pivot_root(b".", b".")
    umount_detached(b".")
    os.chdir("/")


def _bind_programs() -> None:
    attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV
    for path in _BOUND:
        if os.path.islink(path):
            os.symlink(os.readlink(path), _BUILD + path)
        elif os.path.isdir(path):
            os.mkdir(_BUILD + path, 0o755)
            bind_read_only(path.encode(), (_BUILD + path).encode(), attributes)


def _fill_etc() -> None:
    for name, text in _SYNTHETIC.items():
        _write(f"{_BUILD}/etc/{name}", text.encode())
    for name in _ETC_FILES:
        try:
            with open(f"/etc/{name}", "rb") as source:
                content = source.read(_ETC_FILE_MAX)
        except OSError:
            continue  # not every host has every one of them
        _write(f"{_BUILD}/etc/{name}", content)
    os.mkdir(f"{_BUILD}/etc/{_ETC_LINKS}", 0o755)
    try:
        names = os.listdir(f"/etc/{_ETC_LINKS}")
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f"/etc/{_ETC_LINKS}/{name}")
        except OSError:
            continue
        if target.startswith("/usr/"):
            os.symlink(target, f"{_BUILD}/etc/{_ETC_LINKS}/{name}")


def _make_dev(*, privileged: bool) -> None:
    """Give the root a /dev of its own, with the empty directory that masks are made of."""
    dev = f"{_BUILD}/dev"
    mount(b"dev", dev.encode(), b"tmpfs", MS_NOSUID | MS_NOEXEC, b"size=64k,nr_inodes=64,mode=0755")
    for name in ("shm", ".empty"):
        os.mkdir(f"{dev}/{name}", 0o755)
    for name, target in _LINKS.items():
        os.symlink(target, f"{dev}/{name}")
    for name, minor in _NODES.items():
        path = f"{dev}/{name}"
        if privileged:
            os.mknod(path, 0o020666, os.makedev(5 if name == "tty" else 1, minor))
            os.chmod(path, 0o666)  # noqa: S103 - a device for everybody, like the host's
        else:
            _write(path, b"")
            attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_RDONLY
            bind_read_only(f"/dev/{name}".encode(), path.encode(), attributes)
    add_attributes(dev.encode(), MOUNT_ATTR_RDONLY)


def _write(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        while content:
            content = content[os.write(fd, content) :]
    finally:
        os.close(fd)
