"""Who may be killed, as seen from outside: a server, its launcher, a sandbox's first process."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LAUNCHER = b"rookhold_exec/launcher/__main__.py"


def children(pid: int) -> list[int]:
    """Return the children of a process, all its threads asked; none once it is gone."""
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_bytes().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def family(pid: int) -> list[int]:
    """Return a process and all below it, parents first."""
    found, ahead = [], [pid]
    while ahead:
        one = ahead.pop()
        found.append(one)
        ahead += children(one)
    return found


def born(pid: int) -> str:
    """Return when a process started, with which its pid names it for ever; "" if it is dead."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def alive(processes: dict[int, str]) -> list[int]:
    """Return those of the noted processes that still live."""
    return [pid for pid, start in processes.items() if born(pid) == start]


def noted(pids: list[int]) -> dict[int, str]:
    return {pid: start for pid in pids if (start := born(pid))}


def launcher_of(server: int) -> int | None:
    for pid in children(server):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if _LAUNCHER in command:
            return pid
    return None


def first_process_of(launcher: int, job_id: str) -> int | None:
    """Return a job's first process: the one whose child is in the job's group or directory."""
    name = "job-" + job_id.replace("-", "")
    for first in children(launcher):
        for below in children(first):
            try:
                process = Path(f"/proc/{below}")
                told = (process / "cgroup").read_text() + str((process / "cwd").readlink())
            except OSError:
                continue
            if name in told:
                return first
    return None


def kill_child(parent: int, pid: int) -> bool:
    """SIGKILL `pid` if it is, now, a child of `parent`; a pid given to another is left alone."""
    return kill_if(pid, lambda: pid in children(parent))


def kill_if(pid: int, is_meant: Callable[[], bool]) -> bool:
    """SIGKILL `pid` if, once it cannot be given to another, it is the one that is meant."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_meant():
            return False
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    except ProcessLookupError:
        return False
    else:
        return True
    finally:
        os.close(fd)


def bury(spared: set[int]) -> None:
    """Reap the orphans that came to this process and have ended, but none of its own."""
    for pid in children(os.getpid()):
        if pid not in spared and not born(pid):
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue
