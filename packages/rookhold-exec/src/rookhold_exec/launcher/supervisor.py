"""The supervisor of a namespace job: PID 1 of its namespace, out of the job's reach.

It starts the second process, sees what is in force on it, lets it go, and then waits: for its end,
a limit, or the word of the server. At the end it kills all that is left, and collects.
"""

from __future__ import annotations

import os
import select
from _socket import MSG_DONTWAIT, MSG_NOSIGNAL
from time import monotonic

from rookhold_exec.launcher import collect, confine, masks, readback, view
from rookhold_exec.launcher.descriptors import HIGH
from rookhold_exec.launcher.family import Family
from rookhold_exec.launcher.kernel import (
    CAP_DAC_READ_SEARCH,
    CAP_KILL,
    CAP_SYS_PTRACE,
    PR_SET_PDEATHSIG,
    close_from,
    drop_capabilities,
    prctl,
)
from rookhold_exec.launcher.meter import Meter
from rookhold_exec.launcher.protocol import DONE, END, FAILED, KILLED, READY, WALL, send_frame
from rookhold_exec.launcher.signals import SIGKILL
from rookhold_exec.launcher.spawn import MADE
from rookhold_exec.unshare import clone, clone3, setns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from typing import NoReturn

    from rookhold_exec.launcher.spawn import Job

PREPARE_SECONDS = 20.0
# What is left to do to others: kill them, count their CPU time, read what they leave.
_POWERS = (CAP_KILL, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH)


def supervise(job: Job) -> NoReturn:
    """Run as the first process of the job's namespaces, to its end."""
    # The second process first: while it works, this one makes its own copies of what it touches.
    born_in = job.group.born_in
    control = job.control
    try:
        payload = clone3(0, cgroup=born_in) if born_in >= 0 else clone(0)
    except OSError:  # no process or no memory left: said, or it would look like a lost launcher
        send_frame(control, {"op": FAILED, "stage": "clone"})
        os._exit(0)
    if payload == 0:
        confine.run(job)
    try:
        prctl(PR_SET_PDEATHSIG, SIGKILL)
        os.setsid()
        os.close(job.setup.lifeline_held)
        job.theirs.close()
        for fd in (job.stdout, job.stderr):
            os.close(fd)
        if job.stdin >= 0:
            os.close(job.stdin)
        waiting = _listen(job)
        stage = _build(job, payload) or _meet(job, payload, waiting)
        close_from(HIGH)
        family = Family(payload)
        meter = Meter(job)
        controls: list[str] = []
        if stage is None:
            stage, controls = _ready(job, family, meter, waiting)
        job.ours.close()
        if stage is not None:
            family.end(job)
            send_frame(control, {"op": FAILED, "stage": stage})
        else:
            drop_capabilities(_POWERS)
            send_frame(control, {"op": READY, "controls": controls})
            watch(job, family, meter)
    finally:
        control.close()
        os._exit(0)


def _listen(job: Job) -> select.poll:
    waiting = select.poll()
    waiting.register(job.ours.fileno(), select.POLLIN)
    waiting.register(job.control.fileno(), select.POLLRDHUP)
    waiting.register(job.setup.lifeline, select.POLLIN)
    return waiting


def _build(job: Job, payload: int) -> str | None:
    """Do what the payload waits for; the stage at which that failed, or None."""
    try:
        view.build(job)
        view.be_first_to_go(payload)
    except Exception:  # noqa: BLE001 - whatever it was, the job must not run
        return "mounts"
    return None


def _meet(job: Job, payload: int, waiting: select.poll) -> str | None:
    """Wait for the groups, follow the payload into its namespaces, and let it go on.

    In that order: once the payload has given up an identity, a supervisor that is root only of a
    user namespace may not follow it any more. Returns the stage of a failure, or None.
    """
    awaited = [MADE, confine.ENTERED]
    step = "namespaces"
    try:
        while awaited:
            answer = _answer(waiting, job.ours)
            if answer not in awaited:
                return answer[1:].decode() or "start"
            awaited.remove(answer)
            if answer == confine.ENTERED:
                _follow(payload, job.setup.payload_flags)
                job.ours.send(confine.BUILT, MSG_NOSIGNAL)
        step = "groups"
        job.group = job.group.opened()
    except OSError:
        return step
    return None


def _ready(
    job: Job, family: Family, meter: Meter, waiting: select.poll
) -> tuple[str | None, list[str]]:
    """Bring the payload through its exec; the first member is the stage at which that failed.

    The job's files come last: the server may send them late, and all else is there by then.
    """
    ours = job.ours
    _rehearse(job, family)
    try:
        view.fill(job)
    except Exception:  # noqa: BLE001 - whatever it was, the job must not run
        return "files", []
    answer = _answer(waiting, ours)
    if answer[:1] != confine.PREPARED:
        return answer[1:].decode() or "start", []
    if job.setup.sealed:
        masks.seal()
    controls = readback.controls(family.payload, job)
    meter.begin(int(answer[1:]))
    ours.send(confine.GO, MSG_NOSIGNAL)
    answer = _answer(waiting, ours)
    if answer != b"":
        return answer[1:].decode() or "exec", []
    if not readback.has_executed(family.payload):
        return "exec", []
    return None, controls


def _rehearse(job: Job, family: Family) -> None:
    """Look once while the payload is still at work, and forget it.

    What counts is what is seen when it has stopped. That look is three times as quick when the
    pages that it needs are this process's own copies already.
    """
    try:
        readback.controls(family.payload, job)
    except (OSError, ValueError, IndexError):
        return  # the payload has died; the real look will say so


def _follow(payload: int, flags: int) -> None:
    """Enter the namespaces that the payload has made: the host's are no place to stay in."""
    if flags:
        fd = os.pidfd_open(payload)
        try:
            setns(fd, flags)
        finally:
            os.close(fd)


def _answer(waiting: select.poll, ours: socket) -> bytes:
    """Return the next message of the second process; empty at its end of file."""
    for fd, _ in waiting.poll(PREPARE_SECONDS * 1000):
        if fd == ours.fileno():
            try:
                return ours.recv(64, MSG_DONTWAIT)
            except ConnectionError:
                return b""
    return confine.LOST + b"stopped"


def watch(job: Job, family: Family, meter: Meter) -> None:
    """Wait for the first cause to end the job, end it, report and collect."""
    control, lifeline = job.control.fileno(), job.setup.lifeline
    waiting = select.poll()
    waiting.register(family.events, select.POLLIN)
    waiting.register(control, select.POLLRDHUP)
    waiting.register(lifeline, select.POLLIN)
    until = meter.started + job.wall_ms / 1000
    cause = ""
    family.reap()
    while not (cause or family.ended):
        now = monotonic()
        if now >= until:
            cause = WALL
            break
        cause = meter.tick(now)
        if cause:
            break
        pause = min(until, meter.next_tick) - now
        for fd, _ in waiting.poll(max(pause, 0) * 1000 + 0.5):
            if fd == family.events:
                family.reap()
            else:
                cause = KILLED
    family.end(job)
    end = {"op": END, "cause": cause, **meter.facts(family, cause)}
    if job.outputs and cause != KILLED:
        send_frame(job.control, end)
        collect.send_all(job.control, job.outputs, job.directory or "/work")
        send_frame(job.control, {"op": DONE})
    else:
        send_frame(job.control, end, {"op": DONE})  # wakes the server once
