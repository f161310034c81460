"""The supervisor of a job without a sandbox: a child subreaper with a directory on the host.

It confines nothing. What it does hold is the wall limit, the cancel, the end of every process that
the job leaves, and the collection of outputs.
"""

from __future__ import annotations

import os
import stat
from _socket import MSG_NOSIGNAL

from rookhold_exec.launcher import collect
from rookhold_exec.launcher.family import Family
from rookhold_exec.launcher.kernel import PR_SET_CHILD_SUBREAPER, close_from, prctl
from rookhold_exec.launcher.meter import Meter
from rookhold_exec.launcher.protocol import FAILED, READY, frame, receive_frame
from rookhold_exec.launcher.signals import SIG_SETMASK, pthread_sigmask
from rookhold_exec.launcher.spawn import HIGH
from rookhold_exec.launcher.stage import stage
from rookhold_exec.launcher.supervisor import watch
from rookhold_exec.unshare import clone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from rookhold_exec.launcher.spawn import Job


def supervise(job: Job) -> NoReturn:
    """Run as the parent of everything the job starts, to its end."""
    close_from(HIGH)
    os.setsid()
    os.umask(0o077)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    family = Family(-1)
    try:
        step = _start(job, family)
        if step is not None:
            family.end(job)
            collect.send(job.control, frame({"op": FAILED, "stage": step}))
        else:
            meter = Meter(job, family.payload)
            meter.begin(0)
            collect.send(job.control, frame({"op": READY, "controls": []}))
            watch(job, family, meter)
    finally:
        remove_directory(job.directory)
        job.control.close()
        os._exit(0)


def _start(job: Job, family: Family) -> str | None:
    """Stage the files and bring the payload through its exec; else the stage that failed."""
    step = "files"
    try:
        os.mkdir(job.directory, 0o700)
        work = os.open(job.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stage(work, job.script, receive_frame(job.control), job.outputs, -1)
        step = "clone"
        family.payload = clone(0)
    except Exception:  # noqa: BLE001 - whatever it was, the job must not run
        return step
    if family.payload == 0:
        _become(job, work)
    job.theirs.close()
    for fd in (work, job.stdout, job.stderr):
        os.close(fd)
    failure = job.ours.recv(16)  # its end closes when it executes, and when it dies
    job.ours.close()
    return "exec" if failure else None


def _become(job: Job, work: int) -> NoReturn:
    try:
        os.setsid()
        os.umask(0o022)
        pthread_sigmask(SIG_SETMASK, ())
        os.fchdir(work)
        os.dup2(job.stdin, 0)
        os.dup2(job.stdout, 1)
        os.dup2(job.stderr, 2)
        close_from(3, on_exec=True)
        os.execve(job.argv[0], job.argv, job.environment)
    finally:
        job.theirs.send(b"E", MSG_NOSIGNAL)
        os._exit(125)


def remove_directory(path: str) -> None:
    """Remove the job's directory with all in it, following no link; nothing if it is gone.

    One directory is open at a time and a deep tree is taken apart by renaming, so that neither
    recursion nor descriptors run out.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        serial = 0
        while names := os.listdir(top):
            for name in names:
                if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                    os.unlink(name, dir_fd=top)
                    continue
                serial = _lift(top, name, serial)
                os.rmdir(name, dir_fd=top)
        os.rmdir(path)
    except OSError:
        return  # somebody else changes it; the sweep at the next start has another go
    finally:
        os.close(top)


def _lift(top: int, name: str, serial: int) -> int:
    """Empty one directory: files go, directories move up beside it."""
    os.chmod(name, 0o700, dir_fd=top, follow_symlinks=True)
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    try:
        for below in os.listdir(inner):
            if stat.S_ISDIR(os.lstat(below, dir_fd=inner).st_mode):
                os.chmod(below, 0o700, dir_fd=inner)
                serial += 1
                os.rename(below, f".gone-{os.getpid()}-{serial}", src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(below, dir_fd=inner)
    finally:
        os.close(inner)
    return serial
