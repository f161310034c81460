"""A cancel ends a running job at once: what is measured is from the kill to the report."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import pytest

from rookhold_exec.executor import KillReason, OutputRecord
from rookhold_types.limits import Limits
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from endurance.executor import Executor
    from isolating import Isolating

TIMES, SOAK_TIMES = 7, 100
MEDIAN_SECONDS = 1.0  # ten times what is promised: this machine does other work too
JOBS = {
    "sleeping": ("bash", "echo up; sleep 60"),
    "stopped": ("bash", "echo up; kill -STOP $$"),
    "with children": ("bash", "for n in 1 2 3 4 5 6 7 8; do sleep 60 & done; echo up; wait"),
    "busy": ("python", "print('up', flush=True)\nwhile True: pass"),
}


async def cancelled(executor: Executor, language: str, code: str) -> float:
    """Return the seconds that a job lived after its cancel."""
    harness = executor.harness
    plan = harness.plan(language, code, limits=Limits(wall_seconds=60, cpu_seconds=60))
    running = await harness.executor.start(plan)
    began = 0.0
    async for event in running.events():
        if isinstance(event, OutputRecord) and not began:
            began = time.monotonic()
            running.kill(KillReason.CANCELLED)
    report = await running.wait()
    assert report.status is JobStatus.CANCELLED
    return time.monotonic() - began


def run_cancels(
    executor: Executor, backend: Isolating, name: str, count: int, say: Callable[[str], None]
) -> None:
    work = [executor.harness.do(cancelled(executor, *JOBS[name])) for _ in range(count)]
    median, longest = statistics.median(work), max(work)
    say(
        f"{backend.name}: {count} cancels of a job that is {name}: median {median * 1000:.1f} ms,"
        f" longest {longest * 1000:.1f} ms"
    )
    assert median < MEDIAN_SECONDS
    assert executor.before.left_between_jobs() == []


@pytest.mark.parametrize("name", JOBS)
def test_a_cancelled_job_ends_at_once(
    executor: Executor, backend: Isolating, name: str, say: Callable[[str], None]
) -> None:
    run_cancels(executor, backend, name, TIMES, say)


@pytest.mark.soak
@pytest.mark.parametrize("name", JOBS)
def test_each_of_a_hundred_cancelled_jobs_ends_at_once(
    executor: Executor, backend: Isolating, name: str, say: Callable[[str], None]
) -> None:
    run_cancels(executor, backend, name, SOAK_TIMES, say)
