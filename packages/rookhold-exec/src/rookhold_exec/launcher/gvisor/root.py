"""The root in which supervisors and runsc live: runsc, the reviewed root and the groups, no more.

Built once, and copied into every job's mount namespace. Nothing of the host's file system is in it,
so that neither runsc nor the process that serves a sandbox its files can reach any of that.

runsc is shown a version 1 tree of control groups, whatever the host has. Where a hierarchy is held
by a group of ours, that of the job is bound into it; the others are plain files. So runsc joins
what it was already born in, finds what it wants to know of memory and processors, and makes and
leaves no group of its own anywhere.
"""

from __future__ import annotations

import os

from rookhold_exec.launcher.kernel import (
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    MS_BIND,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    add_attributes,
    bind_alone,
    mount,
    pivot_root,
    umount_detached,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rookhold_exec.launcher.groups import Place

RUNSC, ROOTFS, SPACE, BUNDLE = "/runsc", "/rootfs", "/space", "/bundle"
SHOWN = "/sys/fs/cgroup"
MEMORY_SHOWN = f"{SHOWN}/memory/job/memory.limit_in_bytes"

Joined = tuple[str, str, str]  # our groups, what to show of a job's, and where

_BUILD = "/tmp"  # a mountpoint of our own mount namespace; nobody else sees it
_HIERARCHIES = (
    *("blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory"),
    *("net_cls", "net_prio", "perf_event", "pids", "rdma", "systemd"),
)
_NODES = {"null": (1, 3), "zero": (1, 5), "random": (1, 8), "urandom": (1, 9)}
_KVM = {"kvm": (10, 232)}
_UNIFIED = "systemd"  # the hierarchy that stands for version 2: runsc wants nothing of it


def enter(
    runsc: int, rootfs: int, places: list[Place], name: str, *, kvm: bool, faults: frozenset[str]
) -> tuple[Joined, ...]:
    """Build it and make it this process's own; the mount namespace is already new."""
    mount(None, b"/", None, MS_REC | MS_PRIVATE, b"")
    mount(b"root", _BUILD.encode(), b"tmpfs", MS_NOSUID, b"size=1m,nr_inodes=256,mode=0755")
    for path in ("proc", "tmp", "dev", "rootfs", "space", "bundle", "groups", "sys"):
        os.mkdir(f"{_BUILD}/{path}", 0o755)
    _nodes(_NODES | _KVM if kvm else _NODES)
    _put(f"{_BUILD}/runsc", b"")
    attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_RDONLY
    bind_alone(runsc, f"{_BUILD}/runsc".encode(), attributes)
    _bind_rootfs(rootfs, faults)
    _shown_groups()
    joins = tuple(_group(number, place, name) for number, place in enumerate(places))
    os.chdir(_BUILD)
    pivot_root(b".", b".")
    umount_detached(b".")
    os.chdir("/")
    add_attributes(b"/", MOUNT_ATTR_RDONLY)
    return joins


def _nodes(nodes: dict[str, tuple[int, int]]) -> None:
    for name, (major, minor) in nodes.items():
        os.mknod(f"{_BUILD}/dev/{name}", 0o020666, os.makedev(major, minor))
        os.chmod(f"{_BUILD}/dev/{name}", 0o666)  # noqa: S103 - a device for everybody


def _bind_rootfs(rootfs: int, faults: frozenset[str]) -> None:
    target = _BUILD + ROOTFS
    attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV
    if "read-only-root" not in faults:
        attributes |= MOUNT_ATTR_RDONLY
    if "private-rootfs" not in faults:
        bind_alone(rootfs, target.encode(), attributes)
        return
    # Tests only: a root with the same names in it that is another one than was reviewed.
    mount(b"other", target.encode(), b"tmpfs", MS_NOSUID, b"size=64k,nr_inodes=64,mode=0755")
    for entry in os.scandir(f"/proc/self/fd/{rootfs}"):
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), f"{target}/{entry.name}")
        elif entry.is_dir():
            os.mkdir(f"{target}/{entry.name}", 0o755)
            mount(entry.path.encode(), f"{target}/{entry.name}".encode(), None, MS_BIND, b"")


def _shown_groups() -> None:
    top = _BUILD + SHOWN
    os.makedirs(top, 0o755)
    mount(b"groups", top.encode(), b"tmpfs", MS_NOSUID | MS_NOEXEC, b"size=128k,nr_inodes=128")
    for hierarchy in _HIERARCHIES:
        os.makedirs(f"{top}/{hierarchy}/job", 0o755)
        _put(f"{top}/{hierarchy}/job/cgroup.procs", b"")
    processors = sorted(os.sched_getaffinity(0))
    _put(f"{top}/cpuset/job/cpuset.cpus", b",".join(b"%d" % each for each in processors))
    _put(_BUILD + MEMORY_SHOWN, b"")


def _group(number: int, place: Place, name: str) -> Joined:
    controller, version, directory = place
    ours = f"/groups/{number}"
    os.mkdir(_BUILD + ours, 0o755)
    mount(f"{directory}/{name}".encode(), (_BUILD + ours).encode(), None, MS_BIND, b"")
    if version == 2:
        return ours, "payload", f"{SHOWN}/{_UNIFIED}/job"
    return ours, "", f"{SHOWN}/{controller}/job"


def join(joined: Joined, job: str) -> None:
    """Show runsc the job's group of one hierarchy, and no other; in the job's mount namespace.

    runsc reads its own place from the mounts, and does not understand more than one of a hierarchy.
    """
    ours, below, target = joined
    path = f"{ours}/job-{job}/{below}"
    if os.path.isdir(path):  # not where a test leaves this control out
        mount(path.encode(), target.encode(), None, MS_BIND, b"")
    umount_detached(ours.encode())


def show_memory(limit: int) -> None:
    """Tell runsc how much memory there is, where no group does."""
    if os.stat(MEMORY_SHOWN).st_dev == os.stat(SHOWN).st_dev:
        _put(f"{BUNDLE}/memory", b"%d" % limit)
        mount(f"{BUNDLE}/memory".encode(), MEMORY_SHOWN.encode(), None, MS_BIND, b"")


def _put(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)
