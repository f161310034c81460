"""One job's start: its descriptors, its groups, and the clone that becomes its supervisor."""

from __future__ import annotations

import os
from _socket import AF_UNIX, MSG_NOSIGNAL, SOCK_SEQPACKET, socketpair

from rookhold_exec.launcher import limits as rlimits
from rookhold_exec.launcher.descriptors import raise_descriptor
from rookhold_exec.launcher.group import PIDS
from rookhold_exec.launcher.signals import SIGKILL
from rookhold_exec.unshare import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUTS,
    clone,
    clone3,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable
    from typing import Any, NoReturn

    from rookhold_exec.launcher.setup import Setup

MADE = b"M"  # from the launcher, to both processes of a sandbox: its groups are there

# What a supervisor is born in, and what its payload enters while the supervisor builds its view:
# a network namespace takes as long as that. Those of users and cgroups come later still.
SUPERVISOR_FLAGS = {"pid-namespace": CLONE_NEWPID, "mount-namespace": CLONE_NEWNS}
PAYLOAD_FLAGS = {
    "network-namespace": CLONE_NEWNET,
    "ipc-namespace": CLONE_NEWIPC,
    "uts-namespace": CLONE_NEWUTS,
}


class Job:
    """All that a supervisor needs to know; it inherits this through the clone."""

    __slots__ = (
        "argv",
        "control",
        "cpu_usec",
        "directory",
        "environment",
        "group",
        "mem_bytes",
        "name",
        "ours",
        "outputs",
        "pid",
        "pidfd",
        "rlimits",
        "script",
        "setup",
        "space",
        "stderr",
        "stdin",
        "stdout",
        "theirs",
        "uid",
        "wall_ms",
    )

    def __init__(
        self, setup: Setup, message: dict[str, Any], control: socket, fds: list[int]
    ) -> None:
        self.setup = setup
        self.name: str = message["job"]
        self.argv: list[bytes] = message["argv"]
        self.environment: dict[bytes, bytes] = message["environment"]
        self.script: str = message["script"]
        self.outputs: list[str] = message["outputs"]
        self.directory: str = message["directory"]
        self.wall_ms: int = message["wall_ms"]
        self.cpu_usec: int = message["cpu_seconds"] * 1_000_000
        self.mem_bytes: int = message["mem_bytes"]
        self.uid: int = setup.uid_base + message["slot"] if setup.switches_uid else -1
        if setup.gvisor is not None:
            self.uid = setup.gvisor.uid
        self.space = b"mode=0755"
        if "workspace-quota" not in setup.faults:
            self.space += b",size=%d,nr_inodes=%d" % (message["space_bytes"], message["inodes"])
        self.control = control
        # Between the two processes of a sandbox; made here, where no page has to be copied for it.
        self.ours, self.theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
        self.stdout, self.stderr = fds[0], fds[1]
        self.stdin = fds[2] if len(fds) > 2 else -1
        self.group = setup.group_for(
            self.name,
            mem_bytes=self.mem_bytes,
            pids=message["processes"],
            uid=self.uid,
        )
        self.rlimits = rlimits.wanted(
            cpu_seconds=message["cpu_seconds"],
            file_bytes=message["file_bytes"],
            processes=message["processes"],
            # The kernel of a gVisor sandbox counts a job's processes, and a group the runtime's.
            counted=PIDS in self.group.controls and setup.gvisor is None,
        )
        self.pid = self.pidfd = -1

    def make_groups(self) -> None:
        """Make the groups, if they are not there yet, and tell both processes that they are."""
        self.group.make()
        # The supervisor first: once the payload knows, more will come to it from there.
        self.theirs.send(MADE, MSG_NOSIGNAL)
        self.ours.send(MADE, MSG_NOSIGNAL)

    def connect(self) -> None:
        """Make the job's streams those of this process.

        Without input that is the null device, opened anew: what a job sets on an open file, a lock
        on it too, would be there for the next job that has the same one.
        """
        os.dup2(os.open("/dev/null", os.O_RDONLY) if self.stdin < 0 else self.stdin, 0)
        os.dup2(self.stdout, 1)
        os.dup2(self.stderr, 2)

    def let_go(self) -> None:
        """Close what is the supervisor's from now on; for the launcher."""
        self.ours.close()
        self.theirs.close()
        self.group.close()


def namespace_flags(faults: frozenset[str], table: dict[str, int]) -> int:
    flags = 0
    for control, flag in table.items():
        if control not in faults:
            flags |= flag
    return flags


def start(job: Job, flags: int, supervise: Callable[[Job], NoReturn]) -> None:
    """Clone the job's supervisor; on return, in the launcher, `job.pid` and `job.pidfd` are set."""
    group = job.group.init_in
    pid = clone3(flags, cgroup=group) if group >= 0 else clone(flags)
    if pid == 0:
        try:
            supervise(job)
        finally:
            os._exit(124)
    job.pid = pid
    try:
        low = os.pidfd_open(pid)
        try:
            job.pidfd = raise_descriptor(low)
        finally:
            os.close(low)
    except OSError:  # no descriptor left: nobody would ever hear of its end, or could end it
        os.kill(pid, SIGKILL)
        os.waitpid(pid, 0)
        raise
