"""The supervisor of a gVisor job: PID 1 of its namespaces, and the parent of its runsc.

All that a job has on this host is in its mount namespace: one limited tmpfs for its files, one for
the bundle and runsc's own state. When this process ends, whatever the reason, the kernel ends every
other in the namespace, and with the last of them those mounts are gone.
"""

from __future__ import annotations

import os
import select
from resource import RLIMIT_CORE, setrlimit
from time import monotonic

from rookhold_exec.launcher import family as processes
from rookhold_exec.launcher.descriptors import HIGH
from rookhold_exec.launcher.gvisor import config, readback, root
from rookhold_exec.launcher.gvisor.family import Runtime, RuntimeLostError
from rookhold_exec.launcher.gvisor.notify import IN_MODIFY, IN_OPEN, Notices
from rookhold_exec.launcher.gvisor.root import BUNDLE, RUNSC, SPACE
from rookhold_exec.launcher.kernel import (
    CAP_DAC_READ_SEARCH,
    CAP_KILL,
    CAP_SYS_PTRACE,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    close_from,
    drop_capabilities,
    mount,
    prctl,
)
from rookhold_exec.launcher.meter import Meter
from rookhold_exec.launcher.protocol import FAILED, READY, receive_frame, send_frame
from rookhold_exec.launcher.signals import SIG_SETMASK, SIGKILL, pthread_sigmask
from rookhold_exec.launcher.stage import stage
from rookhold_exec.launcher.supervisor import watch
from rookhold_exec.unshare import clone, clone3

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from rookhold_exec.launcher.gvisor.setup import GvisorSetup
    from rookhold_exec.launcher.spawn import Job

START_SECONDS = 20.0  # for runsc, the sandbox and the interpreter together
_LOOK_SECONDS = 0.2
_AHEAD = -10  # it sleeps, but what it wakes up for is over in a few milliseconds
_LOGS = f"{BUNDLE}/log"
_PANIC = f"{BUNDLE}/panic"  # also in the flags that the backend gives
_WORK = f"{SPACE}/work"
_SAID = f"{SPACE}/shm/.rookhold"
_SHOWN_MAX = 4096
# What is left to do to others: kill them, look at them, read what they leave.
_POWERS = (CAP_KILL, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH)


def supervise(job: Job, gvisor: GvisorSetup) -> NoReturn:
    """Run as the first process of the job's namespaces, to its end."""
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    close_from(HIGH)
    os.setsid()
    os.umask(0)  # modes are given in full
    os.setpriority(os.PRIO_PROCESS, 0, _AHEAD)
    job.ours.close()
    job.theirs.close()
    if os.getpid() != 1:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    step = "mounts"
    try:
        if not gvisor.is_reviewed():
            step = "runtime-changed"
            raise OSError
        _mounts(job, gvisor)
        step = "files"
        content = receive_frame(job.control)
        work = os.open(_WORK, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stage(work, job.script, content, job.outputs, job.uid)
        os.close(work)
        step = "bundle"
        bundle = _write_bundle(job, gvisor)
        step = "start"
        Start(job, gvisor, bundle).run()
    except Exception:  # noqa: BLE001 - whatever it was, the job must not run
        send_frame(job.control, {"op": FAILED, "stage": step})
    finally:
        job.control.close()
        os._exit(0)


def _mounts(job: Job, gvisor: GvisorSetup) -> None:
    plain = MS_NOSUID | MS_NODEV
    mount(b"proc", b"/proc", b"proc", plain | MS_NOEXEC, b"")
    mount(b"bundle", BUNDLE.encode(), b"tmpfs", plain, b"size=1m,nr_inodes=256,mode=0700")
    mount(b"job", SPACE.encode(), b"tmpfs", plain, job.space)
    for name, mode in (("work", 0o755), ("tmp", 0o1777), ("shm", 0o1777)):
        os.mkdir(f"{SPACE}/{name}", mode)
    os.chown(_WORK, job.uid, gvisor.gid)
    for joined in gvisor.joins:
        root.join(joined, job.name)
    root.show_memory(job.mem_bytes)


def _write_bundle(job: Job, gvisor: GvisorSetup) -> bytes:
    text = config.build(gvisor.template, job.argv, job.environment, job.rlimits)
    os.mkdir(_LOGS, 0o700)
    os.mkdir(f"{BUNDLE}/state", 0o700)
    _put(f"{BUNDLE}/config.json", text)
    return text


def _put(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if os.write(fd, content) != len(content):
            raise OSError(28, "no space left for the bundle")
    finally:
        os.close(fd)


class Start:
    """From the clone of runsc to the end of the job."""

    def __init__(self, job: Job, gvisor: GvisorSetup, bundle: bytes) -> None:
        self._job = job
        self._gvisor = gvisor
        self._bundle = bundle
        self._notices = Notices()
        self._reported = self._notices.watch(f"{SPACE}/shm", IN_MODIFY)
        self._opened = self._notices.watch(f"{_WORK}/{job.script}", IN_OPEN)
        self._controls: list[str] = []
        self._let_go = False
        self._meter = Meter(job)
        payload = _clone(job, gvisor)
        self._family = Runtime(payload, _LOGS, _PANIC)
        for fd in (job.stdout, job.stderr):
            os.close(fd)
        if job.stdin >= 0:
            os.close(job.stdin)

    def run(self) -> None:
        job, family = self._job, self._family
        stage = self._become_ready()
        os.close(self._notices.fd)
        if stage:
            stage = self._exhausted() or stage
            try:
                family.end(job)
            except RuntimeLostError:
                pass
            send_frame(job.control, {"op": FAILED, "stage": stage})
            return
        drop_capabilities(_POWERS)
        evidence = {"controls": self._controls, "config": self._bundle}
        send_frame(job.control, {"op": READY, **evidence})
        job.directory = _WORK
        try:
            watch(job, family, self._meter)
        except RuntimeLostError:
            return  # without a report: the server says that the job was lost

    def _become_ready(self) -> str:
        """Return once the workload's interpreter has opened its program; else the failed stage."""
        waiting = select.poll()
        waiting.register(self._notices.fd, select.POLLIN)
        waiting.register(self._family.events, select.POLLIN)
        waiting.register(self._job.control.fileno(), select.POLLRDHUP)
        waiting.register(self._job.setup.lifeline, select.POLLIN)
        until = monotonic() + START_SECONDS
        while (left := until - monotonic()) > 0:
            for fd, _ in waiting.poll(min(left, _LOOK_SECONDS) * 1000 + 1):
                if fd == self._notices.fd:
                    continue
                if fd != self._family.events:
                    return "stopped"
                self._family.reap()
            # What was heard before it ended counts: it may have done all its work by now.
            if self._hear():
                return ""
            # A sandbox that lost one of its processes to the memory limit may wait for it for ever.
            if self._family.ended or self._family.lost or self._job.group.oom_kills() > 0:
                return "exec" if self._let_go else "runtime"
        return "exec" if self._let_go else "start"

    def _hear(self) -> bool:
        seen = self._notices.take()
        if self._reported in seen and not self._let_go:
            with open(_SAID, "rb") as said:
                report = said.read(_SHOWN_MAX)
            if report.endswith(b"end\n"):
                self._look(report)
        return self._opened in seen and self._let_go

    def _look(self, report: bytes) -> None:
        """See what is in force while only our own program runs, then let it become the job."""
        found = readback.Processes(_below())
        self._controls = readback.controls(self._job, self._gvisor, found, report)
        self._family.follow(found.gofer, found.sandbox)
        self._meter.begin(self._meter.cpu_usec())
        os.unlink(_SAID)
        self._let_go = True

    def _exhausted(self) -> str:
        """Name the limit that was too small for the runtime itself, or for the interpreter."""
        group = self._job.group
        if group.oom_kills() > 0:
            return "memory"
        return "processes" if group.pids_refused() > 0 else ""


def _below() -> list[int]:
    if os.getpid() != 1:
        return processes.descendants()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]


def _clone(job: Job, gvisor: GvisorSetup) -> int:
    born_in = job.group.born_in
    supervisor = os.getpid()
    pid = clone3(0, cgroup=born_in) if born_in >= 0 else clone(0)
    if pid == 0:
        _become(job, gvisor, supervisor)
    return pid


def _become(job: Job, gvisor: GvisorSetup, supervisor: int) -> NoReturn:
    """Become runsc, in the job's groups from its first instruction on."""
    try:
        prctl(PR_SET_PDEATHSIG, SIGKILL)
        if os.getppid() != supervisor:
            os._exit(125)
        job.group.join()
        os.setpriority(os.PRIO_PROCESS, 0, 0)
        _put_over("/proc/self/oom_score_adj", b"1000")  # where the host is full, jobs go first
        os.setsid()
        os.umask(0o022)
        pthread_sigmask(SIG_SETMASK, ())
        job.connect()
        close_from(3, on_exec=True)
        # At 0 the kernel still hands the image of a crash to the host's helper; at 1 it does not.
        setrlimit(RLIMIT_CORE, (1, 1))
        argv = [
            b"runsc",
            f"--root={BUNDLE}/state".encode(),
            f"--debug-log={_LOGS}/".encode(),
            *gvisor.arguments,
            b"run",
            f"--bundle={BUNDLE}".encode(),
            job.name.encode(),
        ]
        os.execve(RUNSC, argv, {})
    finally:
        os._exit(125)


def _put_over(path: str, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)
