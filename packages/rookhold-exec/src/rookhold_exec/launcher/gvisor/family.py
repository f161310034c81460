"""The processes of a sandbox: runsc, what serves its files, and the sandbox itself.

runsc ends with its workload, and its log says how that ended. The gofer, which serves the sandbox
its files, is no child of ours: its death is seen by a descriptor, and its cause read from the
zombie that runsc has not collected yet. runsc itself kills it at every end, but only once it has
collected the sandbox; so a gofer that failed beside a living sandbox was ended by others.

A sandbox that sees its gofer hang up kills its workload, and then runsc says what it says of a job
that has killed itself. So the gofer's ends of their sockets are held open here as well: its sandbox
goes on, and waits, until its death was seen, however late that is.
"""

from __future__ import annotations

import os
import select

from rookhold_exec.launcher.family import Family
from rookhold_exec.launcher.gvisor.ending import ending
from rookhold_exec.launcher.kernel import descriptor_of
from rookhold_exec.launcher.signals import SIGKILL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rookhold_exec.launcher.spawn import Job


class RuntimeLostError(Exception):
    """The runtime ended without saying how its workload did; nothing true is known of that."""


class Runtime(Family):
    """runsc and all below it; `payload` is runsc, and `status` becomes the workload's own."""

    __slots__ = ("_gofer", "_poll", "_sandbox", "_told_in", "_watching", "lost")

    def __init__(self, payload: int, logs: str, panic: str) -> None:
        super().__init__(payload)
        self._told_in = (logs, panic)
        self._gofer = self._sandbox = self._watching = -1
        self.lost = False
        self._poll = select.epoll()
        self._poll.register(self.signals, select.EPOLLIN)
        self.events = self._poll.fileno()

    def follow(self, gofer: int, sandbox: int) -> None:
        """Watch for an end of the gofer before its time."""
        self._gofer, self._sandbox = gofer, sandbox
        self._watching = os.pidfd_open(gofer)
        _hold_sockets(gofer, self._watching)
        self._poll.register(self._watching, select.EPOLLIN)

    def reap(self, *, wait: bool = False) -> bool:
        self._look_at_gofer()
        before = self.ended
        left = super().reap(wait=wait)
        if self.ended and not before:
            self._learn()
        return left

    def _look_at_gofer(self) -> None:
        if self._watching < 0 or all(fd != self._watching for fd, _ in self._poll.poll(0)):
            return
        self._poll.unregister(self._watching)
        os.close(self._watching)
        self._watching = -1
        self.lost = _has_failed(self._gofer) and _lives(self._sandbox)
        if self.lost and not self.ended:
            self.ended, self.status = True, SIGKILL  # what its sandbox would do, were it let

    def _learn(self) -> None:
        told = ending(*self._told_in)
        if told is None:
            self.lost = True
        else:
            self.status = told

    def end(self, job: Job) -> None:
        """Kill what is left; RuntimeLostError if the runtime had been lost before."""
        lost = self.lost
        super().end(job)
        if lost and job.group.oom_kills() == 0:
            raise RuntimeLostError


def _hold_sockets(pid: int, process: int) -> None:
    """Keep a descriptor of each socket of that process, until this one ends."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:"):
                descriptor_of(process, int(name))
        except OSError:  # a file that it has closed meanwhile, or Yama at its strictest
            continue


def _has_failed(pid: int) -> bool:
    """Say whether a signal or an error ended this process, which has not been collected yet."""
    fields = _stat(pid)
    return fields[:1] == [b"Z"] and fields[49] != b"0"


def _lives(pid: int) -> bool:
    return _stat(pid)[:1] not in ([], [b"Z"], [b"X"])


def _stat(pid: int) -> list[bytes]:
    """Return what /proc tells of a process, from its state on; nothing once it was collected."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as text:
            stat = text.read()
    except OSError:
        return []
    return stat[stat.rindex(b")") + 2 :].split()
