"""The processes below a supervisor: reaping them, and ending every one of them."""

from __future__ import annotations

import os

from rookhold_exec.launcher.kernel import child_events
from rookhold_exec.launcher.signals import SIG_BLOCK, SIGCHLD, SIGKILL, pthread_sigmask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from rookhold_exec.launcher.spawn import Job


class Family:
    """The processes below this one: it reaps them, and can end them all."""

    __slots__ = ("alone", "ended", "events", "payload", "payload_cpu_usec", "signals", "status")

    def __init__(self, payload: int) -> None:
        pthread_sigmask(SIG_BLOCK, (SIGCHLD,))
        self.signals = self.events = child_events()  # a backend may wait for more than signals
        self.payload = payload
        self.status = 0
        self.payload_cpu_usec = 0
        self.ended = self.alone = False

    def reap(self, *, wait: bool = False) -> bool:
        """Reap who has ended; with `wait`, until somebody does. False when nobody is left."""
        try:
            os.read(self.signals, 128)
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status, usage = os.wait4(-1, 0 if wait else os.WNOHANG)
            except ChildProcessError:
                self.alone = True  # whom others left behind would be our child too
                return False
            if pid == 0:
                return True
            if pid == self.payload:
                self.ended = True
                self.status = status
                self.payload_cpu_usec = int((usage.ru_utime + usage.ru_stime) * 1_000_000)
            if wait:
                return True

    def end(self, job: Job) -> None:
        """Kill everybody and return when the kernel says that nobody is left."""
        if self.alone:
            return
        job.group.kill()
        first = os.getpid() == 1
        left = True
        while left:
            if first:
                try:
                    os.kill(-1, SIGKILL)
                except ProcessLookupError:
                    pass
            else:
                kill_descendants()
            left = self.reap(wait=True) and self.reap()


def kill_descendants() -> None:
    """Kill every process below this one; what they leave comes to this subreaper."""
    for pid in descendants():
        try:
            os.kill(pid, SIGKILL)
        except ProcessLookupError:
            pass


def end_orphans(spared: set[int]) -> None:
    """Kill and reap every child but those, with all below it: what killed supervisors have left."""
    while orphans := [pid for pid in children() if pid not in spared]:
        for orphan in orphans:
            for pid in (orphan, *descendants(orphan)):
                try:
                    os.kill(pid, SIGKILL)
                except ProcessLookupError:
                    pass
        for orphan in orphans:
            os.waitpid(orphan, 0)


def children() -> list[int]:
    """Return this process's own children."""
    return _children(os.getpid()) if _listed() else _all_children().get(os.getpid(), [])


def _listed() -> bool:
    """Does this kernel list the children of a thread?"""
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def descendants(top: int = 0) -> list[int]:
    """Return the pids below a process, this one if none is named, parents first."""
    known = None if _listed() else _all_children()
    found: list[int] = []
    ahead = [top or os.getpid()]
    while ahead:
        pid = ahead.pop()
        below = _children(pid) if known is None else known.get(pid, [])
        found += below
        ahead += below
    return found


def _children(pid: int) -> list[int]:
    """Return the children that the threads of a process have; none if it is gone."""
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as text:
                children += map(int, text.read().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return children


def _all_children() -> dict[int, list[int]]:
    """Return everybody's children, where the kernel does not list them: each process is read."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    text = stat.read()
            except OSError:
                continue
            parent = int(text[text.rindex(b")") + 2 :].split(b" ", 2)[1])
            children.setdefault(parent, []).append(int(name))
    return children
