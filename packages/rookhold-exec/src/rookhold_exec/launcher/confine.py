"""The second process of a sandbox: it builds the job's view, gives up every power, runs the job.

It is our code until its exec, and it stops before that until the supervisor has seen for itself
what is in force. The order of the steps matters; each one needs what a later one gives away.
"""

from __future__ import annotations

import os
from _socket import MSG_NOSIGNAL, sethostname
from resource import RUSAGE_SELF, getrusage

from rookhold_exec.launcher import limits as rlimits
from rookhold_exec.launcher import masks, usermap
from rookhold_exec.launcher.descriptors import HIGH
from rookhold_exec.launcher.kernel import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    close_from,
    drop_bounding_set,
    drop_capabilities,
    install_filter,
    mount,
    prctl,
)
from rookhold_exec.launcher.protocol import receive_frame
from rookhold_exec.launcher.root import JOB_UID
from rookhold_exec.launcher.signals import SIG_SETMASK, pthread_sigmask
from rookhold_exec.launcher.stage import stage
from rookhold_exec.unshare import CLONE_NEWCGROUP, unshare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from rookhold_exec.launcher.spawn import Job

PREPARED, GO, LOST = b"P", b"G", b"E"  # on the socket between the two processes of a sandbox


def run(job: Job) -> NoReturn:
    """Become the job, or tell the supervisor at which stage that failed and exit."""
    step = "mounts"
    supervisor = job.theirs
    try:
        faults = job.setup.faults
        close_from(HIGH)
        job.ours.close()
        os.setsid()
        os.umask(0)  # modes are given in full
        _mounts(job)
        _be_first_to_go()
        step = "files"
        content = receive_frame(job.control)
        work = os.open("/work", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stage(work, job.script, content, job.outputs, job.uid)
        os.fchdir(work)
        os.umask(0o022)
        step = "groups"
        job.group.join()
        if "cgroup-namespace" not in faults:
            unshare(CLONE_NEWCGROUP)
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
        os.dup2(job.stdin, 0)
        os.dup2(job.stdout, 1)
        os.dup2(job.stderr, 2)
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


def _mounts(job: Job) -> None:
    faults = job.setup.faults
    mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, b"hidepid=2")
    masks.apply(job.setup.masks)
    mount(b"job", b"/tmp", b"tmpfs", MS_NOSUID | MS_NODEV, job.space)
    os.mkdir("/tmp/work", 0o755)
    os.mkdir("/tmp/tmp", 0o1777)
    os.mkdir("/tmp/shm", 0o1777)
    if job.uid >= 0:
        os.chown("/tmp/work", job.uid, job.uid)
    mount(b"/tmp/work", b"/work", None, MS_BIND, b"")
    mount(b"/tmp/shm", b"/dev/shm", None, MS_BIND, b"")
    mount(b"/tmp/tmp", b"/tmp", None, MS_BIND, b"")
    if "uts-namespace" not in faults:
        sethostname("sandbox")


def _be_first_to_go() -> None:
    """When the host runs out of memory the job goes, not the server.

    A server that is exempt (-1000) would also exempt its jobs, and then nothing in their group can
    be killed.
    """
    fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
    os.write(fd, b"1000")
    os.close(fd)


def _give_up_powers(job: Job) -> None:
    faults = job.setup.faults
    program = job.setup.seccomp if "seccomp" not in faults else None
    keeps = "capabilities-dropped" in faults
    unprivileged_filter = "no-new-privileges" not in faults
    if not keeps:
        drop_bounding_set(job.setup.last_capability)
    if program is not None and not unprivileged_filter:
        install_filter(program)  # without no_new_privs only while the capability is still there
    if not keeps:
        drop_capabilities()
    if unprivileged_filter:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        if program is not None:
            install_filter(program)
