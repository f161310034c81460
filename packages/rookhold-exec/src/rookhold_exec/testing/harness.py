"""Running plans in a test: one executor and one event loop for a whole class of tests."""

from __future__ import annotations

import asyncio  # noqa: TID251 - an executor lives on an asyncio loop
import time
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from rookhold_exec.executor import (
    ExecEvent,
    KillReason,
    OutputRecord,
    Report,
    Running,
    SandboxPlan,
    Truncated,
    Violation,
)
from rookhold_types.ids import new_job_id
from rookhold_types.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

    from rookhold_exec.executor import Executor

DEADLINE_SECONDS = 60.0


class Result(Struct, frozen=True):
    """One job, run to its end."""

    report: Report
    events: tuple[ExecEvent, ...]
    seconds: float

    def stream(self, name: str) -> bytes:
        """Return the bytes that the records of a stream stand for."""
        parts = []
        for event in self.events:
            if isinstance(event, OutputRecord) and event.stream == name:
                parts.append(event.line.encode() if event.raw is None else event.raw)
                parts.append(b"\n" if event.eol else b"")
        return b"".join(parts)

    @property
    def stdout(self) -> bytes:
        return self.stream("stdout")

    @property
    def stderr(self) -> bytes:
        return self.stream("stderr")

    @property
    def rules(self) -> list[str]:
        return [event.rule for event in self.events if isinstance(event, Violation)]

    @property
    def truncated(self) -> list[str]:
        return [event.stream for event in self.events if isinstance(event, Truncated)]


class Harness:
    """An open executor with its loop."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self._runner = asyncio.Runner()
        self._faults: list[str] = []
        self._runner.get_loop().set_exception_handler(self._note)

    def _note(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._faults.append(f"{context['message']}: {context.get('exception')!r}")

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the executor's loop, within the deadline."""

        async def bounded() -> Any:
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await work

        result = self._runner.run(bounded())
        assert self._faults == [], "callbacks of the executor failed"
        return result

    def plan(self, language: str, code: str, **more: Any) -> SandboxPlan:
        more.setdefault("limits", Limits(wall_seconds=20))
        return SandboxPlan(job_id=new_job_id(), language=language, code=code.encode(), **more)

    def run(self, language: str, code: str, **more: Any) -> Result:
        """Run one job to its end."""
        result: Result = self.do(self.finish(self.plan(language, code, **more)))
        return result

    async def finish(self, plan: SandboxPlan, *, kill_on: bytes | None = None) -> Result:
        """Run a plan to its end, cancelling it when it has printed `kill_on`."""
        began = time.monotonic()
        running = await self.executor.start(plan)
        events = [event async for event in _until(running, kill_on)]
        report = await running.wait()
        return Result(report, tuple(events), time.monotonic() - began)

    def close(self) -> None:
        self.do(self.executor.close())
        self._runner.close()


async def _until(running: Running, kill_on: bytes | None) -> Any:
    async for event in running.events():
        yield event
        if (
            kill_on is not None
            and isinstance(event, OutputRecord)
            and event.line.encode() == kill_on
        ):
            running.kill(KillReason.CANCELLED)


class HarnessContract:
    """Base of the contract classes: makes the executor, once for a class."""

    @classmethod
    def make(cls, directory: Path) -> Executor:
        """Return the executor under test, not opened; `directory` is new, empty and its own."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def harness(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
        harness = Harness(cls.make(tmp_path_factory.mktemp("jobs")))
        harness.do(harness.executor.open())
        yield harness
        harness.close()
