"""What is in force on a sandbox, seen from both sides while only our own program runs in it.

From outside: the processes of the sandbox in /proc, which are runsc's. From inside: the report of
`bootstrap.sh`, of what the application kernel shows to a program. Some of it runsc does whatever it
is told (a mount namespace, for one); that is claimed only where it was asked for too.
"""

from __future__ import annotations

import os

from rookhold_exec.launcher.gvisor.root import RUNSC, SPACE
from rookhold_exec.launcher.limits import OPEN_FILES
from rookhold_exec.launcher.readback import NAMESPACES, as_shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rookhold_exec.launcher.gvisor.setup import GvisorSetup
    from rookhold_exec.launcher.spawn import Job

_SETS = 4  # inheritable, permitted, effective, bounding; older ones show no ambient set
_NONE = b"0" * 16
_LINES = 8
_BLOCK = 512  # what a shell counts file sizes in
_SANDBOX, _GOFER = b"runsc-sandbox", b"runsc-gofer"


class ReportError(Exception):
    """The sandbox is not what it has to be; nothing of the job has run in it."""


class Processes:
    """The processes of one sandbox."""

    __slots__ = ("all", "gofer", "sandbox")

    def __init__(self, pids: list[int]) -> None:
        """Raises ReportError unless there is one sandbox and one gofer, both the reviewed runsc."""
        ours = _identity(RUNSC)
        self.all: list[int] = []
        named: dict[bytes, list[int]] = {_SANDBOX: [], _GOFER: []}
        for pid in pids:
            name, _, _ = _read(f"/proc/{pid}/cmdline").partition(b"\0")
            if name in named and _identity(f"/proc/{pid}/exe") == ours:
                named[name].append(pid)
            self.all.append(pid)
        if [len(found) for found in named.values()] != [1, 1]:
            raise ReportError("processes")
        [self.sandbox], [self.gofer] = named.values()


def controls(job: Job, gvisor: GvisorSetup, processes: Processes, report: bytes) -> list[str]:
    """Return the sorted names of the controls seen in force."""
    told = report.splitlines()
    if len(told) != _LINES or told[-1] != b"end":
        raise ReportError("report")
    seen = [*_outside(job, gvisor, processes), *_inside(job, told)]
    return sorted(name for name in seen if name not in job.setup.faults)


def _outside(job: Job, gvisor: GvisorSetup, processes: Processes) -> list[str]:
    sandbox, gofer = f"/proc/{processes.sandbox}", f"/proc/{processes.gofer}"
    seen = [
        control
        for name, control in NAMESPACES.items()
        if os.readlink(f"{sandbox}/ns/{name}") not in job.setup.outer_namespaces[name]
    ]
    if all(b"\nNoNewPrivs:\t1\n" in _read(f"/proc/{pid}/status") for pid in _hostile(processes)):
        seen.append("no-new-privileges")
    if _identity(f"{gofer}/root") == gvisor.rootfs:
        seen.append("private-rootfs")
    spaces = ("work", "tmp", "dev/shm")
    if [_identity(f"{gofer}/root/{place}") for place in spaces] == [
        _identity(f"{SPACE}/{place}") for place in ("work", "tmp", "shm")
    ] and as_shown(job.space) <= _limits_of(SPACE.encode()):
        seen.append("workspace-quota")
    groups = set(job.group.controls)
    for pid in processes.all:
        groups &= set(job.group.seen(_read(f"/proc/{pid}/cgroup")))
    return [*seen, *groups]


def _hostile(processes: Processes) -> list[int]:
    """Return the processes that a job's system calls or files meet; not runsc, which waits."""
    return [processes.sandbox, processes.gofer]


def _inside(job: Job, told: list[bytes]) -> list[str]:
    kernel, capabilities, filtered, mounted, file, files, processes, _ = told
    seen = []
    outer = _read("/proc/version").strip()
    if kernel.startswith(b"kernel ") and kernel[7:].strip() not in {b"", outer}:
        seen.append("application-kernel")
    sets = capabilities.split()[1:]
    if len(sets) >= _SETS and all(each.endswith(_NONE) for each in sets):
        seen.append("capabilities-dropped")
    _, place, options = mounted.split(b" ", 2)
    if place == b"/" and b"ro" in options.split(b","):
        seen.append("read-only-root")
    wanted = {name: soft for _, name, soft, _ in job.rlimits}
    # Without the filter a job leaves the limit of processes by way of a user namespace.
    if [filtered, file, files, processes] == [
        b"filter 2",
        b"%d" % (wanted[b"Max file size"] // _BLOCK),
        b"%d" % min(wanted[b"Max open files"], OPEN_FILES),
        b"%d" % wanted[b"Max processes"],
    ]:
        seen.append("rlimits")
    return seen


def _limits_of(place: bytes) -> set[bytes]:
    """Return the options of the file system that was mounted at `place`."""
    for line in reversed(_read("/proc/self/mountinfo").splitlines()):
        before, _, after = line.partition(b" - ")
        if before.split(b" ")[4] == place:
            return set(after.split(b" ", 2)[2].split(b","))
    return set()


def _identity(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (-1, -1)
    return (status.st_dev, status.st_ino)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as text:
            return text.read()
    except OSError:  # it has just ended
        return b""
