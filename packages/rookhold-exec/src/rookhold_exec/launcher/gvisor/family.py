"""The processes of a sandbox: runsc, what serves its files, and the sandbox itself.

runsc ends with its workload, and its log says how that ended. The gofer, which serves the sandbox
its files, is no child of ours: its death is seen by a descriptor, and its cause read from the zombie
that runsc has not collected yet. runsc kills it too, but once the sandbox is gone; so of the two the
one that died first tells.
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

    __slots__ = ("_gofer", "_helpers", "_poll", "_told_in", "lost")

    def __init__(self, payload: int, logs: str, panic: str) -> None:
        super().__init__(payload)
        self._told_in = (logs, panic)
        self._gofer = -1
        self._helpers: list[int] = []  # descriptors of gofer and sandbox
        self.lost = False
        self._poll = select.epoll()
        self._poll.register(self.signals, select.EPOLLIN)
        self.events = self._poll.fileno()

    def follow(self, gofer: int, sandbox: int) -> None:
        """Watch which of the two ends first."""
        self._gofer = gofer
        for pid in (gofer, sandbox):
            self._helpers.append(os.pidfd_open(pid))
            self._poll.register(self._helpers[-1], select.EPOLLIN)

    def reap(self, *, wait: bool = False) -> bool:
        self._look_at_helpers()
        before = self.ended
        left = super().reap(wait=wait)
        if self.ended and not before:
            self._learn()
        return left

    def _look_at_helpers(self) -> None:
        if not self._helpers:
            return
        # The kernel gives them in the order in which they became ready.
        ended = [fd for fd, _ in self._poll.poll(0) if fd in self._helpers]
        if ended:
            gofer = self._helpers[0]
            self.lost = ended[0] == gofer and _was_killed(self._gofer)
            for fd in self._helpers:
                self._poll.unregister(fd)
                os.close(fd)
            self._helpers = []

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
    """Say whether a signal ended this process; one that was collected already ended by itself."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as text:
            stat = text.read()
    except OSError:
        return False
    fields = stat[stat.rindex(b")") + 2 :].split()
    return fields[0] == b"Z" and os.WIFSIGNALED(int(fields[49]))
