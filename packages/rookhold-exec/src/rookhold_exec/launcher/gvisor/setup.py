"""What a launcher of gVisor jobs was told once, and has opened for good."""

from __future__ import annotations

import os
from errno import ESTALE

from rookhold_exec.launcher import rootfs as reviewed
from rookhold_exec.launcher.gvisor import config, root, supervisor
from rookhold_exec.launcher.kernel import open_plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from rookhold_exec.launcher.groups import Place
    from rookhold_exec.launcher.spawn import Job

_OWN_TASKS = 128  # threads of runsc, sandbox and gofer: some 35 idle, 60 while busy
_TASKS_EACH = 16  # threads with which systrap stands for one process of a job: up to 8 seen
# The platform ptrace has one for each of the sandbox's own threads that ever ran the process, and a
# thread for each process: 15 at a time came to 720 tasks. What they take is memory of the job.
_PTRACE, _THREADS, _TASKS_MAX = "--platform=ptrace", 48, 16_384

Identity = tuple[int, ...]  # device, inode, size, times of change: a file that somebody has touched


class GvisorSetup:
    """One per launcher."""

    __slots__ = (
        "_touched",
        "arguments",
        "gid",
        "joins",
        "rootfs",
        "template",
        "traces",
        "uid",
    )

    def __init__(
        self, message: dict[str, Any], places: list[Place], groups: str, faults: frozenset[str]
    ) -> None:
        """Check what was reviewed, and move into a root of its own. Raises OSError."""
        self.uid: int = message["job_uid"]
        self.gid: int = message["job_gid"]
        if self.uid <= 0 or self.gid <= 0:
            raise OSError(ESTALE, "a job is never root")
        self.rootfs: tuple[int, int] = tuple(message["rootfs_identity"])
        self._touched: Identity = tuple(message["runsc_identity"])
        self.template = config.template(faults, uid=self.uid, gid=self.gid)
        flags: list[str] = message["runsc_flags"]
        self.arguments: list[bytes] = [b"--network=none", *(flag.encode() for flag in flags)]
        rootfs = reviewed.open_reviewed(message["rootfs"], self.rootfs)
        runsc = open_plain(message["runsc"].encode(), os.O_PATH)
        if identity(os.fstat(runsc)) != self._touched:
            raise OSError(ESTALE, os.strerror(ESTALE))
        self.traces = _PTRACE in flags
        kvm = "--platform=kvm" in flags
        self.joins = root.enter(runsc, rootfs, places, groups, kvm=kvm, faults=faults)
        os.close(rootfs)
        os.close(runsc)

    def tasks(self, processes: int) -> int:
        """Return how many tasks of the host the runtime may have for so many of its job.

        When it may have no more, the sandbox is gone, and its job with it.
        """
        tasks = _OWN_TASKS + _TASKS_EACH * processes
        if self.traces:
            tasks = max(tasks, min(processes * (processes + _THREADS), _TASKS_MAX))
        return tasks

    def supervise(self, job: Job) -> NoReturn:
        """Be the first process of a job's namespaces, to its end."""
        supervisor.supervise(job, self)

    def is_reviewed(self) -> bool:
        """Say whether runsc is still the very file, untouched, that was reviewed."""
        return identity(os.stat(root.RUNSC)) == self._touched


def identity(status: os.stat_result) -> Identity:
    return (
        *(status.st_dev, status.st_ino, status.st_size),
        *(status.st_mtime_ns, status.st_ctime_ns),
    )
