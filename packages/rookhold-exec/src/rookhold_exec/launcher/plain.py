"""The supervisor of a job without a sandbox: a child subreaper with a directory on the host.

It confines nothing. What it does hold is the wall limit, the cancel, the end of every process that
the job leaves, and the collection of outputs.
"""

from __future__ import annotations

import os
from _socket import MSG_NOSIGNAL

from rookhold_exec.launcher import directory
from rookhold_exec.launcher.descriptors import HIGH
from rookhold_exec.launcher.family import Family
from rookhold_exec.launcher.kernel import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    close_from,
    prctl,
)
from rookhold_exec.launcher.meter import Meter
from rookhold_exec.launcher.protocol import FAILED, READY, receive_frame, send_frame
from rookhold_exec.launcher.signals import SIG_SETMASK, SIGKILL, pthread_sigmask
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
            send_frame(job.control, {"op": FAILED, "stage": step})
        else:
            meter = Meter(job)
            meter.begin(0)
            send_frame(job.control, {"op": READY, "controls": []})
            watch(job, family, meter)
    finally:
        directory.remove(job.directory)
        job.control.close()
        os._exit(0)


def _start(job: Job, family: Family) -> str | None:
    """Stage the files and bring the payload through its exec; else the stage that failed."""
    step = "files"
    try:
        work = directory.make(job.directory)  # and hold it to the end of this process
        stage(work, job.script, receive_frame(job.control), job.outputs, -1)
        step = "clone"
        supervisor = os.getpid()
        family.payload = clone(0)
    except Exception:  # noqa: BLE001 - whatever it was, the job must not run
        return step
    if family.payload == 0:
        _become(job, work, supervisor)
    job.theirs.close()
    for fd in (job.stdout, job.stderr):
        os.close(fd)
    failure = job.ours.recv(16)  # its end closes when it executes, and when it dies
    job.ours.close()
    return "exec" if failure else None


def _become(job: Job, work: int, supervisor: int) -> NoReturn:
    try:
        prctl(PR_SET_PDEATHSIG, SIGKILL)  # where the launcher dies too, nobody else would end it
        if os.getppid() != supervisor:
            os._exit(125)
        os.setsid()
        os.umask(0o022)
        pthread_sigmask(SIG_SETMASK, ())
        os.fchdir(work)
        job.connect()
        close_from(3, on_exec=True)
        os.execve(job.argv[0], job.argv, job.environment)
    finally:
        job.theirs.send(b"E", MSG_NOSIGNAL)
        os._exit(125)
