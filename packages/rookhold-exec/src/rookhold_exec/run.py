"""One running job on the server's side: its control socket, its pipes, its report."""

from __future__ import annotations

import asyncio  # noqa: TID251 - drives the job's descriptors on the loop
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any

import msgspec

from rookhold_exec import outcome
from rookhold_exec.errors import LauncherLostError, SandboxStartError
from rookhold_exec.executor import (
    CollectedOutput,
    ExecEvent,
    KillReason,
    Provenance,
    Report,
    SandboxPlan,
    UncollectedOutput,
)
from rookhold_exec.launcher.protocol import (
    DONE,
    END,
    FAILED,
    OUTPUT,
    READY,
    Frames,
    ProtocolError,
    frame,
)
from rookhold_exec.pump import Pump
from rookhold_types.limits import OUTPUT_FILE_BYTES_MAX, OUTPUT_FILES_BYTES_MAX
from rookhold_types.states import OutputReason

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from rookhold_exec.launcher.client import LauncherClient

QUEUE_MAX = 1024  # records between capture and its reader; then the pipes are not read
_QUEUE_LOW = QUEUE_MAX // 4
DRAIN_SECONDS = 2.0  # for reading a pipe after the job's end
_START_SECONDS = 25.0
_OVERDUE_SECONDS = 3.0  # after the wall limit or a kill, before the supervisor itself is killed
_COLLECT_SECONDS = 15.0


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
        self._loop = asyncio.get_running_loop()
        self._queue: deque[ExecEvent] = deque()
        self._wake = asyncio.Event()
        self._captured = False
        self._discarding = False
        self._started: asyncio.Future[tuple[str, ...]] = self._loop.create_future()
        self._gone = asyncio.Event()
        self._finished = asyncio.Event()
        self._control: socket.socket | None = None
        self._frames = Frames()
        self._pumps: list[Pump] = []
        self._facts: outcome.Facts | None = None
        self._outputs: dict[str, bytes | str] = {}
        self._after: list[Callable[[SandboxRun], None]] = []
        self._reason: KillReason | None = None
        self._overdue: str | None = None
        self._backstop: asyncio.TimerHandle | None = None
        self._ready_at = 0.0
        self._ended_at = 0.0

    async def begin(self, message: dict[str, Any], content: bytes) -> None:
        """Start it and return when it was seen ready; on any exception nothing of it is left."""
        self._name = message["job"]
        try:
            await self._hand_over(message)
            self._arm(_START_SECONDS, "start")
            await self._send(content)
            controls = await self._started
        except BaseException:
            await _whatever_happens(self._abort())
            raise
        self._provenance = self._describe(self._plan, controls)

    async def _hand_over(self, message: dict[str, Any]) -> None:
        given: list[int] = []
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            self._control = ours
            ours.setblocking(False)
            given.append(theirs.detach())
            for stream in ("stdout", "stderr"):
                read, write = os.pipe()
                given.append(write)
                self._pumps.append(Pump(read, stream, self._take))
            if self._plan.stdin is not None:
                given.append(_sealed(self._plan.stdin))
            self._loop.add_reader(ours.fileno(), self._on_control)
            await self._launcher.start(message, given)
        except OSError as error:
            raise SandboxStartError("descriptors") from error
        finally:
            for fd in given:
                os.close(fd)

    async def _send(self, content: bytes) -> None:
        if self._control is None:
            return
        try:
            sent = self._control.send(content)
            if sent < len(content):
                await self._loop.sock_sendall(self._control, memoryview(content)[sent:])
        except BlockingIOError:
            await self._loop.sock_sendall(self._control, content)
        except OSError:
            return  # the supervisor is gone, or says in a moment why it failed

    def discard(self) -> None:
        """Read the job's pipes to their end from now on, and keep nothing of what comes."""
        self._discarding = True
        self._queue.clear()
        self._resume()

    async def _abort(self) -> None:
        self.discard()
        self._half_close()
        self._arm(_OVERDUE_SECONDS, "start")
        if self._control is not None:
            await self._finished.wait()
        self._disarm()
        for pump in self._pumps:
            pump.close()
        if not self._started.done():
            self._started.cancel()

    def _take(self, records: Sequence[ExecEvent]) -> bool:
        if not self._discarding:
            self._queue.extend(records)
            self._wake.set()
        if self._captured_all():
            self._maybe_finish()
        return len(self._queue) < QUEUE_MAX

    def _captured_all(self) -> bool:
        return bool(self._pumps) and all(pump.closed for pump in self._pumps)

    def _on_control(self) -> None:
        control = self._control
        if control is None:
            return
        try:
            data = control.recv(262_144)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            if data:
                for value in self._frames.feed(data):
                    self._on_frame(value)
                return
        except (ProtocolError, msgspec.ValidationError, KeyError, TypeError, AttributeError):
            self._launcher.kill(self._name)
        self._loop.remove_reader(control.fileno())
        control.close()
        self._control = None
        self._gone.set()
        self._disarm()
        self._ended()
        self._maybe_finish()

    def _on_frame(self, value: dict[str, Any]) -> None:
        operation = value["op"]
        if operation == READY and not self._started.done():
            self._ready_at = self._loop.time()
            self._arm(self._plan.limits.wall_seconds + _OVERDUE_SECONDS, "wall")
            self._started.set_result(tuple(str(name) for name in value["controls"]))
        elif operation == FAILED and not self._started.done():
            self._started.set_exception(SandboxStartError(str(value["stage"])))
        elif operation == END and self._facts is None:
            self._facts = msgspec.convert(value, outcome.Facts)
            self._arm(_COLLECT_SECONDS, "collect")
            self._ended()
        elif operation == OUTPUT and self._facts is not None:
            self._on_output(value)
        elif operation != DONE:
            raise ProtocolError("a frame out of its place")

    def _on_output(self, value: dict[str, Any]) -> None:
        path, content = value["path"], value.get("content")
        if path not in self._plan.outputs or path in self._outputs:
            raise ProtocolError("an output that was not asked for")
        if not isinstance(content, bytes):
            self._outputs[path] = OutputReason(value["reason"])
            return
        held = sum(len(other) for other in self._outputs.values() if isinstance(other, bytes))
        if len(content) > OUTPUT_FILE_BYTES_MAX:
            self._outputs[path] = OutputReason.TOO_LARGE
        elif held + len(content) > OUTPUT_FILES_BYTES_MAX:
            self._outputs[path] = OutputReason.TOTAL_TOO_LARGE
        else:
            self._outputs[path] = content

    def _ended(self) -> None:
        """No process of the job is left: its pipes end at once, or something is wrong."""
        if self._ended_at:
            return
        self._ended_at = self._loop.time()
        if not self._started.done():
            lost = LauncherLostError("the launcher died with this start in its hands")
            self._started.set_exception(lost)
            self._started.exception()  # it may be that nobody waits for it any more
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
        if self._captured or self._control is not None or not self._captured_all():
            return
        self._captured = True
        verdict = self._verdict()
        if verdict.violation is not None:
            self._queue.append(verdict.violation)
        self._wake.set()
        self._finished.set()
        for call in self._after:
            call(self)

    def _verdict(self) -> outcome.Outcome:
        if self._facts is not None:
            return outcome.judge(self._facts, self._plan.limits, self._reason)
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
            if self._captured:
                return
            self._wake.clear()
            if not self._queue and not self._captured:
                await self._wake.wait()

    def _resume(self) -> None:
        for pump in self._pumps:
            pump.resume()

    def kill(self, reason: KillReason) -> None:
        """End every process of the job; idempotent, never blocks."""
        if self._reason is None and self._control is not None and self._facts is None:
            self._reason = reason
            self._half_close()
            self._arm(_OVERDUE_SECONDS, "kill")

    def _half_close(self) -> None:
        if self._control is not None:
            try:
                self._control.shutdown(socket.SHUT_WR)
            except OSError:
                return  # gone already

    def _arm(self, seconds: float, why: str) -> None:
        self._disarm()
        self._backstop = self._loop.call_later(seconds, self._act, why)

    def _disarm(self) -> None:
        if self._backstop is not None:
            self._backstop.cancel()
            self._backstop = None

    def _act(self, why: str) -> None:
        """Kill a supervisor that has not done its work in time; its namespace dies with it."""
        self._overdue = self._overdue or why
        self._launcher.kill(self._name)

    def when_finished(self, call: Callable[[SandboxRun], None]) -> None:
        """Have `call` called once the report is there."""
        if self._finished.is_set():
            call(self)
        else:
            self._after.append(call)

    async def ended(self) -> None:
        """Return once the supervisor is gone, whether or not anybody reads the events."""
        await self._gone.wait()

    async def wait(self) -> Report:
        """Return the report once no process of the job is left and outputs are collected."""
        await self._finished.wait()
        verdict = self._verdict()
        usage = None if self._facts is None else self._facts.usage()
        wall_ms = int((self._ended_at - self._ready_at) * 1000) if usage is None else None
        stdout, stderr = (pump.capture.evidence() for pump in self._pumps)
        collected, uncollected = self._collected()
        return Report(
            status=verdict.status,
            exit_code=verdict.exit_code,
            killed_by=verdict.killed_by,
            wall_time_ms=usage.wall_time_ms if usage is not None else wall_ms or 0,
            usage=usage,
            stdout=stdout,
            stderr=stderr,
            provenance=self._provenance,
            collected=collected,
            uncollected=uncollected,
        )

    def _collected(
        self,
    ) -> tuple[tuple[CollectedOutput, ...], tuple[UncollectedOutput, ...]]:
        good: list[CollectedOutput] = []
        bad: list[UncollectedOutput] = []
        if self._facts is not None and self._facts.cause != "killed":
            for path in self._plan.outputs:
                content = self._outputs.get(path, OutputReason.UNREADABLE)
                if isinstance(content, bytes):
                    good.append(CollectedOutput(path, content))
                else:
                    bad.append(UncollectedOutput(path, content))
        return tuple(good), tuple(bad)


def content_of(plan: SandboxPlan) -> bytes:
    """Return the one frame in which code and inputs travel to the sandbox."""
    files = [[file.path, file.content] for file in plan.files]
    return frame({"code": plan.code, "files": files})


def _sealed(data: bytes) -> int:
    """Return a descriptor at the start of exactly `data`, which nobody can change any more.

    A file, not a pipe: a job that does not read its stdin keeps nobody waiting.
    """
    import fcntl

    fd = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    seals = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


async def _whatever_happens(work: Any) -> None:
    """Finish `work` although this task is being cancelled, perhaps more than once."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            continue
