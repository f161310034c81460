"""One running job on the server's side: started, followed, ended, reported."""

from __future__ import annotations

import asyncio  # noqa: TID251 - drives the job's descriptors on the loop
import fcntl
import hashlib
import os
from collections import deque
from typing import TYPE_CHECKING, Any

from msgspec import structs

from rookhold_exec import outcome
from rookhold_exec.control import BROKEN, GONE, Control
from rookhold_exec.errors import LauncherLostError, SandboxStartError
from rookhold_exec.executor import (
    ExecEvent,
    KillReason,
    NotPermittedError,
    Provenance,
    Report,
    SandboxPlan,
)
from rookhold_exec.launcher.protocol import END, FAILED, READY, frame
from rookhold_exec.pump import Pump

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from rookhold_exec.executor import Permit, StreamName
    from rookhold_exec.launcher.client import LauncherClient

QUEUE_MAX = 1024  # records between capture and its reader; then the pipes are not read
_QUEUE_LOW = QUEUE_MAX // 4
DRAIN_SECONDS = 2.0  # for reading a pipe after the job's end
START_SECONDS = 25.0
_OVERDUE_SECONDS = 3.0  # after a limit or a kill, before the supervisor itself is killed
_COLLECT_SECONDS = 15.0
_STREAMS: tuple[StreamName, ...] = ("stdout", "stderr")
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class SandboxRun:
    """A job in the hands of its supervisor. `Running` of both backends of this wheel."""

    def __init__(
        self,
        plan: SandboxPlan,
        launcher: LauncherClient,
        provenance: Callable[[SandboxPlan, tuple[str, ...]], Provenance],
        never_ready: Provenance,
    ) -> None:
        self._plan = plan
        self._launcher = launcher
        self._describe = provenance
        self._provenance = never_ready
        self._name = ""
        self._launcher_pid = -1  # the launcher that has this job; another one knows nothing of it
        self._loop = asyncio.get_running_loop()
        self._queue: deque[ExecEvent] = deque()
        self._wake = asyncio.Event()
        self._discarding = False
        self._started: asyncio.Future[tuple[str, ...]] = self._loop.create_future()
        self._finished = asyncio.Event()
        self._after: list[Callable[[SandboxRun], None]] = []
        self._pumps: list[Pump] = []
        self._reason: KillReason | None = None
        self._overdue: str | None = None
        self._backstop: asyncio.TimerHandle | None = None
        self._ready_at = 0.0
        self._ended_at = 0.0
        self._control = Control(plan.outputs, self._heard)

    async def begin(
        self, message: dict[str, Any], content: bytes, permit: Permit | None = None
    ) -> None:
        """Start it and return when it was seen ready; on any exception nothing of it is left.

        While `permit` runs the sandbox is made; it waits, however long, for what it is to run.
        """
        self._name = message["job"]
        try:
            await self._hand_over(message)
            if permit is not None and not await permit():
                raise NotPermittedError
            self._arm(START_SECONDS, "start")
            self._control.send(content)
            controls = await self._started
        except BaseException:
            await _whatever_happens(self._abort())
            raise
        self._provenance = self._describe(self._plan, controls)
        if (config := self._control.config) is not None:
            digest = hashlib.sha256(config).hexdigest()
            self._provenance = structs.replace(self._provenance, config_sha256=digest)

    async def _hand_over(self, message: dict[str, Any]) -> None:
        given = [self._control.theirs.detach()]
        streams: list[tuple[StreamName, int]] = []
        try:
            for stream in _STREAMS:
                read, write = os.pipe()
                given.append(write)
                streams.append((stream, read))
            if self._plan.stdin is not None:
                given.append(_sealed(self._plan.stdin))
            await self._launcher.start(message, given)
            self._launcher_pid = self._launcher.pid
        except OSError as error:
            raise SandboxStartError("descriptors") from error
        finally:
            # The launcher is at work by now.
            for fd in given:
                os.close(fd)
            self._pumps = [Pump(fd, stream, self._take) for stream, fd in streams]

    async def _abort(self) -> None:
        self.discard()
        self._control.end()
        self._arm(_OVERDUE_SECONDS, "start")
        await self._finished.wait()
        if not self._started.done():
            self._started.cancel()

    def discard(self) -> None:
        """Read the job's pipes to their end from now on, and keep nothing of what comes."""
        self._discarding = True
        self._queue.clear()
        self._resume()

    def _take(self, records: Sequence[ExecEvent]) -> bool:
        if not self._discarding:
            self._queue.extend(records)
            self._wake.set()
        self._maybe_finish()
        return len(self._queue) < QUEUE_MAX

    def _heard(self, operation: str) -> None:
        """Go on from what the supervisor has said, or from its silence."""
        control = self._control
        waited_for = not self._started.done()  # a start that was cancelled is not any more
        if operation == READY and control.controls is not None and waited_for:
            self._ready_at = self._loop.time()
            self._arm(self._plan.limits.wall_seconds + _OVERDUE_SECONDS, "wall")
            self._started.set_result(control.controls)
        elif operation == FAILED and control.stage is not None and waited_for:
            self._started.set_exception(SandboxStartError(control.stage))
        elif operation == END:
            self._arm(_COLLECT_SECONDS, "collect")
            self._ended()
        elif operation == BROKEN:
            self._launcher.kill(self._name)
        elif operation == GONE:
            self._disarm()
            self._ended()
            self._maybe_finish()

    def _ended(self) -> None:
        """No process of the job is left: its pipes end at once, or something is wrong."""
        if self._ended_at:
            return
        self._ended_at = self._loop.time()
        if not self._started.done():
            lost = LauncherLostError("the launcher died with this start in its hands")
            self._started.set_exception(lost)
        if self._started.cancelled() or self._started.exception() is not None:
            self.discard()
        self._loop.call_later(DRAIN_SECONDS, self._cut_drain)

    def _cut_drain(self) -> None:
        """End reading that hangs; a pipe that waits only for our own reader goes on."""
        waiting = [pump for pump in self._pumps if not pump.closed]
        if any(pump.paused for pump in waiting):
            self._loop.call_later(DRAIN_SECONDS, self._cut_drain)
            return
        for pump in waiting:
            pump.close()

    def _maybe_finish(self) -> None:
        captured = all(pump.closed for pump in self._pumps)
        if self._finished.is_set() or not self._control.gone.is_set() or not captured:
            return
        self._finished.set()
        if not self._discarding:
            self._queue.extend(self._verdict().violations)
        self._wake.set()
        for call in self._after:
            call(self)

    def _verdict(self) -> outcome.Outcome:
        facts = self._control.facts
        if facts is not None:
            return outcome.judge(facts, self._plan.limits, self._reason)
        if self._reason is not None:
            return outcome.cancelled()
        if self._overdue == "wall":
            return outcome.timed_out(self._plan.limits)
        return outcome.lost()

    async def events(self) -> AsyncIterator[ExecEvent]:
        """Yield what the job prints and runs into, in order; for one reader, once."""
        while True:
            while self._queue:
                event = self._queue.popleft()
                if len(self._queue) == _QUEUE_LOW:
                    self._resume()
                yield event
            self._resume()
            if self._finished.is_set():
                return
            self._wake.clear()
            if not self._queue and not self._finished.is_set():
                await self._wake.wait()

    def _resume(self) -> None:
        for pump in self._pumps:
            pump.resume()

    def kill(self, reason: KillReason) -> None:
        """End every process of the job; idempotent, never blocks."""
        if self._reason is None and not self._ended_at:
            self._reason = reason
            self._control.end()
            self._arm(_OVERDUE_SECONDS, "kill")

    def _arm(self, seconds: float, why: str) -> None:
        self._disarm()
        if self._control.gone.is_set():
            return  # nothing is left to be late
        self._backstop = self._loop.call_later(seconds, self._act, why)

    def _disarm(self) -> None:
        if self._backstop is not None:
            self._backstop.cancel()
            self._backstop = None

    def _act(self, why: str) -> None:
        """Kill a supervisor that has not done its work in time; its namespace dies with it.

        If even that has no effect, the launcher hangs: then it is killed, and started again.
        """
        if self._overdue is None:
            self._overdue = why
            self._launcher.kill(self._name)
        else:
            self._launcher.kill_itself(self._launcher_pid)
        self._arm(_OVERDUE_SECONDS, why)

    def when_finished(self, call: Callable[[SandboxRun], None]) -> None:
        """Have `call` called once the report is there."""
        if self._finished.is_set():
            call(self)
        else:
            self._after.append(call)

    async def ended(self) -> None:
        """Return once the supervisor is gone, whether or not anybody reads the events."""
        await self._control.gone.wait()

    async def wait(self) -> Report:
        """Return the report once no process of the job is left and outputs are collected."""
        await self._finished.wait()
        verdict = self._verdict()
        facts = self._control.facts
        usage = None if facts is None else facts.usage()
        lived_ms = int((self._ended_at - self._ready_at) * 1000)
        stdout, stderr = (pump.capture.evidence() for pump in self._pumps)
        collected, uncollected = self._control.collected()
        return Report(
            status=verdict.status,
            exit_code=verdict.exit_code,
            killed_by=verdict.killed_by,
            wall_time_ms=lived_ms if usage is None else usage.wall_time_ms,
            usage=usage,
            stdout=stdout,
            stderr=stderr,
            provenance=self._provenance,
            collected=collected,
            uncollected=uncollected,
        )


def content_of(plan: SandboxPlan) -> bytes:
    """Return the one frame in which code and inputs travel to the sandbox."""
    files = [[file.path, file.content] for file in plan.files]
    return frame({"code": plan.code, "files": files})


def _sealed(data: bytes) -> int:
    """Return a descriptor at the start of exactly `data`, which nobody can change any more.

    A file, not a pipe: a job that does not read its stdin keeps nobody waiting.
    """
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


async def _whatever_happens(work: Coroutine[Any, Any, None]) -> None:
    """Finish `work` although this task is being cancelled, perhaps more than once."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            continue
