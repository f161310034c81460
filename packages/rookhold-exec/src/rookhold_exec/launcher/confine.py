"""The second process of a sandbox: it enters its namespaces, gives up every power, runs the job.

It is our code until its exec, and it stops twice: until the supervisor has built the job's view of
the system, and until it has seen for itself what is in force. The order of the steps matters; each
one needs what a later one gives away.
"""

from __future__ import annotations

import os
from _socket import MSG_NOSIGNAL, sethostname
from resource import RUSAGE_SELF, getrusage

from rookhold_exec.launcher import limits as rlimits
from rookhold_exec.launcher import usermap
from rookhold_exec.launcher.descriptors import HIGH
from rookhold_exec.launcher.kernel import (
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    close_from,
    drop_bounding_set,
    drop_capabilities,
    prctl,
)
from rookhold_exec.launcher.root import JOB_UID
from rookhold_exec.launcher.signals import SIG_SETMASK, pthread_sigmask
from rookhold_exec.launcher.spawn import MADE
from rookhold_exec.unshare import CLONE_NEWCGROUP, unshare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from rookhold_exec.launcher.spawn import Job

ENTERED, BUILT, PREPARED, GO, LOST = (
    b"N",
    b"B",
    b"P",
    b"G",
    b"E",
)  # on the socket between the two processes of a sandbox


def run(job: Job) -> NoReturn:
    """Become the job, or tell the supervisor at which stage that failed and exit."""
    step = "namespaces"
    supervisor = job.theirs
    try:
        faults = job.setup.faults
        os.close(job.setup.lifeline_held)
        job.ours.close()
        os.setsid()
        unshare(job.setup.payload_flags)
        if "uts-namespace" not in faults:
            sethostname(b"sandbox")  # type: ignore[arg-type]  # bytes need no encoder
        supervisor.send(ENTERED, MSG_NOSIGNAL)
        awaited = [MADE, BUILT]
        while awaited:
            awaited.remove(supervisor.recv(1))
        step = "groups"
        job.group.join()
        close_from(HIGH)
        if "cgroup-namespace" not in faults:
            unshare(CLONE_NEWCGROUP)
        os.chdir("/work")
        os.umask(0o022)
        step = "identity"
        if job.uid >= 0:
            os.setgroups([])
            os.setresgid(job.uid, job.uid, job.uid)
            os.setresuid(job.uid, job.uid, job.uid)
            prctl(PR_SET_DUMPABLE, 1)  # else the maps below belong to root
        if "user-namespace" not in faults:
            outside = max(job.uid, 0)
            usermap.enter(JOB_UID, uid=outside, gid=outside)
        step = "limits"
        if "rlimits" not in faults:
            rlimits.apply(job.rlimits)
        step = "confinement"
        _give_up_powers(job)
        step = "start"
        spent = getrusage(RUSAGE_SELF)
        used = int((spent.ru_utime + spent.ru_stime) * 1_000_000)
        supervisor.send(PREPARED + b"%d" % used, MSG_NOSIGNAL)
        # While the supervisor looks, what is no control is made ready.
        pthread_sigmask(SIG_SETMASK, ())
        job.connect()
        close_from(3, on_exec=True)
        if supervisor.recv(1) != GO:
            os._exit(125)
        step = "exec"
        os.execve(job.argv[0], job.argv, job.environment)
    except BaseException:  # noqa: BLE001 - whatever it was, the job must not run
        try:
            supervisor.send(LOST + step.encode(), MSG_NOSIGNAL)
        finally:
            os._exit(125)


def _give_up_powers(job: Job) -> None:
    faults = job.setup.faults
    program = job.setup.seccomp if "seccomp" not in faults else None
    keeps = "capabilities-dropped" in faults
    unprivileged_filter = "no-new-privileges" not in faults
    if not keeps:
        drop_bounding_set(job.setup.last_capability)
    if program is not None and not unprivileged_filter:
        program.install()  # without no_new_privs only while the capability is still there
    if not keeps:
        drop_capabilities()
    if unprivileged_filter:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        if program is not None:
            program.install()
