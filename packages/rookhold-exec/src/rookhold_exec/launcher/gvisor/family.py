"""The processes of a sandbox: runsc, what serves its files, and the sandbox itself.

runsc ends with its workload, and its log says how that ended. The gofer, which serves the sandbox
its files, is no child of ours: its death is seen by a descriptor, and its cause read from the
zombie that runsc has not collected yet. runsc itself kills it at every end, but only once it has
collected the sandbox; so a gofer that a signal ended beside a living sandbox was killed by others,
and the sandbox will kill its workload over that.
"""

from __future__ import annotations

import os
import select

from rookhold_exec.launcher.family import Family
from rookhold_exec.launcher.gvisor.ending import ending

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
        self.lost = _was_killed(self._gofer) and _lives(self._sandbox)

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


def _was_killed(pid: int) -> bool:
    """Say whether a signal ended this process, which has not been collected yet."""
    fields = _stat(pid)
    return fields[:1] == [b"Z"] and os.WIFSIGNALED(int(fields[49]))


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
