"""The supervisor of a namespace job: PID 1 of its namespace, out of the job's reach.

It starts the second process, sees what is in force on it, lets it go, and then waits: for its end,
a limit, or the word of the server. At the end it kills all that is left, and collects.
"""

from __future__ import annotations

import os
import select
from _socket import MSG_DONTWAIT, MSG_NOSIGNAL
from time import monotonic

from rookhold_exec.launcher import collect, confine, masks, readback
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
from rookhold_exec.unshare import clone, clone3

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
    payload = clone3(0, cgroup=born_in) if born_in >= 0 else clone(0)
    if payload == 0:
        confine.run(job)
    prctl(PR_SET_PDEATHSIG, SIGKILL)
    close_from(HIGH)
    os.setsid()
    job.theirs.close()
    for fd in (job.stdout, job.stderr):
        os.close(fd)
    if job.stdin != job.setup.null:
        os.close(job.stdin)
    family = Family(payload)
    control = job.control
    try:
        stage, meter, controls = _ready(job, family)
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


def _ready(job: Job, family: Family) -> tuple[str | None, Meter, list[str]]:
    """Bring the payload through its exec; the first member is the stage at which that failed."""
    ours = job.ours
    waiting = select.poll()
    waiting.register(ours.fileno(), select.POLLIN)
    waiting.register(job.control.fileno(), select.POLLRDHUP)
    waiting.register(job.setup.lifeline, select.POLLIN)
    meter = Meter(job)
    answer = _answer(waiting, ours)
    if answer[:1] != confine.PREPARED:
        return answer[1:].decode() or "start", meter, []
    if job.setup.sealed:
        masks.seal()
    controls = readback.controls(family.payload, job)
    meter.begin(int(answer[1:]))
    ours.send(confine.GO, MSG_NOSIGNAL)
    answer = _answer(waiting, ours)
    if answer != b"":
        return answer[1:].decode() or "exec", meter, []
    if not readback.has_executed(family.payload):
        return "exec", meter, []
    return None, meter, controls


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
    facts = meter.facts(family, cause)
    send_frame(job.control, {"op": END, "cause": cause, **facts})
    if cause != KILLED:
        collect.send_all(job.control, job.outputs, job.directory or "/work")
    send_frame(job.control, {"op": DONE})
