"""A sandbox that is built while it is being decided whether its job may start."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookhold_exec.backends.launched import LaunchedExecutor
from rookhold_exec.executor import AheadExecutor, NotPermittedError, SandboxPlan
from rookhold_exec.launcher.family import descendants
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness
from rookhold_types.ids import new_job_id
from rookhold_types.limits import Limits
from rookhold_types.states import JobStatus

BACKENDS = [pytest.param("namespaces-dev", marks=pytest.mark.linux_ns), "off"]
HELD_SECONDS = 0.3


@pytest.fixture(params=BACKENDS)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    settings = ExecSettings(jobs_root=str(tmp_path), node="none", python="none")
    harness = Harness(choose_backend(request.param, settings))
    harness.do(harness.executor.open())
    yield harness
    harness.close()


def processes(executor: AheadExecutor) -> list[int]:
    assert isinstance(executor, LaunchedExecutor)
    assert executor._launcher is not None
    return descendants(executor._launcher.pid)


def plan(code: bytes = b"echo ran\n") -> SandboxPlan:
    return SandboxPlan(
        job_id=new_job_id(), language="bash", code=code, limits=Limits(wall_seconds=30)
    )


def test_nothing_of_the_job_runs_before_it_is_permitted(harness: Harness) -> None:
    executor = harness.executor
    assert isinstance(executor, AheadExecutor)
    seen: list[bool] = []

    async def permit() -> bool:
        await asyncio.sleep(HELD_SECONDS)
        seen.append(bool(processes(executor)))  # a sandbox is there, and waits
        return True

    async def run() -> tuple[float, float, JobStatus]:
        began = time.time()
        running = await executor.start_when(plan(b"date +%s.%N\n"), permit)
        lines = [event.line async for event in running.events() if hasattr(event, "line")]
        return began, float(lines[0]), (await running.wait()).status

    began, ran_at, status = harness.do(run())
    assert status is JobStatus.SUCCEEDED
    assert ran_at - began >= HELD_SECONDS
    assert seen == [True]


@pytest.mark.parametrize("how", ["refused", "raised", "cancelled"])
def test_without_a_permit_nothing_runs_and_nothing_is_left(
    harness: Harness, tmp_path: Path, how: str
) -> None:
    executor = harness.executor
    assert isinstance(executor, AheadExecutor)

    async def permit() -> bool:
        if how == "raised":
            raise LookupError
        if how == "cancelled":
            await asyncio.sleep(60)
        return False

    async def run() -> None:
        async with asyncio.timeout(HELD_SECONDS if how == "cancelled" else 60):
            await executor.start_when(plan(), permit)

    expected = {"refused": NotPermittedError, "raised": LookupError, "cancelled": TimeoutError}
    with pytest.raises(expected[how]):
        harness.do(run())
    until = time.monotonic() + 10
    while processes(executor) and time.monotonic() < until:
        time.sleep(0.01)
    assert processes(executor) == []
    assert not list(tmp_path.glob("job-*"))
    assert harness.run("bash", "echo next\n").stdout == b"next\n"
