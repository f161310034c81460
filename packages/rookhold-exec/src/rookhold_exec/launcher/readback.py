"""What is in force on a stopped payload, read from /proc by its supervisor.

Nothing here is configuration: a control is named only if the kernel shows it on the process.
"""

from __future__ import annotations

import os

from rookhold_exec.launcher.group import PIDS
from rookhold_exec.launcher.limits import in_force
from rookhold_exec.launcher.rootfs import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from rookhold_exec.launcher.setup import Setup
    from rookhold_exec.launcher.spawn import Job

    Judged = TypeVar("Judged")

NAMESPACES = {
    "user": "user-namespace",
    "pid": "pid-namespace",
    "mnt": "mount-namespace",
    "net": "network-namespace",
    "ipc": "ipc-namespace",
    "uts": "uts-namespace",
    "cgroup": "cgroup-namespace",
}
_NO_CAPABILITIES = tuple(
    b"\nCap%b:\t0000000000000000\n" % kind for kind in (b"Inh", b"Prm", b"Eff", b"Bnd", b"Amb")
)
OWN_SPACE = (b"/work", b"/tmp", b"/dev/shm")
_ROOT_OPTIONS = {b"ro", b"nosuid", b"nodev"}
_judged: dict[bytes, Any] = {}  # a supervisor looks at one process only
_PAGE = 4096  # what /proc gives at once; a larger buffer would be new pages to fault in
_FORK_NO_EXEC = 0x40  # in the flags of /proc/<pid>/stat until the process has called exec


def namespaces(pid: str) -> dict[str, str]:
    """Return the identity of each namespace of a process."""
    return {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in NAMESPACES}


def controls(pid: int, job: Job) -> list[str]:
    """Return the sorted names of the controls seen in force on process `pid`."""
    setup = job.setup
    seen = [
        control
        for name, control in NAMESPACES.items()
        if os.readlink(f"/proc/{pid}/ns/{name}") not in setup.outer_namespaces[name]
    ]
    status = _read(f"/proc/{pid}/status")
    if all(line in status for line in _NO_CAPABILITIES):
        seen.append("capabilities-dropped")
    if b"\nNoNewPrivs:\t1\n" in status:
        seen.append("no-new-privileges")
    if _one_filter_more(status, setup.outer_filters):
        seen.append("seccomp")
    groups = job.group.seen(_read(f"/proc/{pid}/cgroup"))
    # The rlimit of processes leaves the last word to a group; where that is not there, it is wrong.
    limits = _read(f"/proc/{pid}/limits")
    if _meaning(limits, lambda: in_force(job.rlimits, limits)) and (
        PIDS in groups or PIDS not in job.group.controls
    ):
        seen.append("rlimits")
    seen.extend(groups)
    mounts = _read(f"/proc/{pid}/mountinfo")
    seen.extend(_meaning(mounts, lambda: _mounts(mounts, job.space, setup)))
    seen.sort()
    return seen


def _meaning(text: bytes, judge: Callable[[], Judged]) -> Judged:
    """Judge a text, or remember how the same text was judged: in a rehearsal, for this one job."""
    if text not in _judged:
        _judged[text] = judge()
    judgement: Judged = _judged[text]
    return judgement


def filters() -> int:
    """Return how many system call filters hold this process; a container's own count too."""
    status = _read("/proc/self/status")
    known = _filters(status)
    return known if known >= 0 else int(b"\nSeccomp:\t2\n" in status)


def _one_filter_more(status: bytes, outer: int) -> bool:
    """Is our filter there? One that the launcher itself was born with is not ours to claim."""
    if b"\nSeccomp:\t2\n" not in status:
        return False
    count = _filters(status)
    return count == outer + 1 if count >= 0 else outer == 0


def _filters(status: bytes) -> int:
    """Return the kernel's count of filters, or -1 before Linux 5.9, which does not tell."""
    _, found, after = status.partition(b"\nSeccomp_filters:\t")
    return int(after.split(b"\n", 1)[0]) if found else -1


def _mounts(text: bytes, space: bytes, setup: Setup) -> list[str]:
    """Judge /proc/<pid>/mountinfo; of several mounts on one place the last one counts."""
    top: dict[bytes, tuple[bytes, bytes, set[bytes], bytes]] = {}
    for line in text.splitlines():
        before, _, after = line.partition(b" - ")
        _, _, device, root, place, options, *_ = before.split(b" ")
        top[place] = (device, root, set(options.split(b",")), after.split(b" ", 2)[2])
    seen = []
    writable = {place for place, (_, _, options, _) in top.items() if b"ro" not in options}
    # What is reviewed has to be exact; a development sandbox leaves /proc as the kernel has it.
    spared = OWN_SPACE if setup.sealed else (*OWN_SPACE, b"/proc")
    if b"/" in top and writable <= set(spared) and top[b"/"][2] >= _ROOT_OPTIONS:
        seen.append("read-only-root")
    if setup.root_place is not None and b"/" in top:
        device, root, _, _ = top[b"/"]
        reviewed = (device, plain(root)) == setup.root_place
        if reviewed and top.keys() == setup.mount_points:
            seen.append("private-rootfs")
    if all(place in top for place in OWN_SPACE):
        devices = {top[place][0] for place in OWN_SPACE}
        limits = set(top[b"/work"][3].split(b","))
        if len(devices) == 1 and as_shown(space) <= limits:
            seen.append("workspace-quota")
    return seen


def as_shown(options: bytes) -> set[bytes]:
    """Return the limits of a tmpfs as the kernel shows them: the size in KiB."""
    shown = set()
    for option in options.split(b","):
        name, _, value = option.partition(b"=")
        if name == b"size":
            shown.add(b"size=%dk" % (int(value) // 1024))
        elif name == b"nr_inodes":
            shown.add(option)
    return shown or {b"no limit was asked for"}


def has_executed(pid: int) -> bool:
    """Say whether a process, which may be a zombie by now, got through its exec."""
    text = _read(f"/proc/{pid}/stat")
    flags = int(text[text.rindex(b")") + 2 :].split(b" ", 7)[6])
    return not flags & _FORK_NO_EXEC


def _read(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = part = os.read(fd, _PAGE)
        while part:
            part = os.read(fd, _PAGE)
            data += part
        return data
    finally:
        os.close(fd)
