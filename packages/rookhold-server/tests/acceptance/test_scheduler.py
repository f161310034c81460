"""Q1 to Q6, Q10 and Q13: who may wait, whose turn it is, and what holds a turn back.

One server with a small queue serves most of them; it is empty at the beginning of each test.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from altered import altered
from crowd import SECONDS, SLEEP, Crowd
from faults.book import Book
from gateway import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rookhold.results import JobDetail

WORKERS, CAPACITY, TENANT_CAPACITY, BUDGET_MB = 2, 12, 6, 1500
TENANTS = ("local", "a", "b", "c", "heavy", "light")
SMALL_QUEUE = """
from rookhold_server.jobs.admission import QueueAdmission
whole = QueueAdmission.__init__
def small(self, *, capacity, tenant_capacity):
    assert capacity == 1024  # the real one takes long to fill
    whole(self, capacity={capacity}, tenant_capacity=tenant_capacity)
QueueAdmission.__init__ = small
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    place = tmp_path_factory.mktemp("scheduler")
    settings = {
        "ROOKHOLD_WORKERS": str(WORKERS),
        "ROOKHOLD_TENANT_QUEUE_CAPACITY": str(TENANT_CAPACITY),
        "ROOKHOLD_MEMORY_BUDGET_MB": str(BUDGET_MB),
        "ROOKHOLD_TENANT_WEIGHTS": "heavy=3,light=1",
    }
    python = altered(place / "python", SMALL_QUEUE.format(capacity=CAPACITY))
    with Crowd(place / "home", TENANTS, settings=settings, python=python) as crowd:
        yield crowd


@pytest.fixture
def crowd(server: Crowd) -> Iterator[Crowd]:
    yield server
    server.clear()


def plain(tmp_path: Path, *, python: str | None = None, **settings: str) -> Crowd:
    named = {f"ROOKHOLD_{name}": value for name, value in settings.items()}
    more: dict[str, Any] = {} if python is None else {"python": python}
    base = {"ROOKHOLD_WORKERS": str(WORKERS)}
    return Crowd(tmp_path / "home", ("a", "b"), settings=base | named, **more)


def test_q1_the_queue_takes_its_capacity_and_one_more_for_each_that_leaves(crowd: Crowd) -> None:
    held = crowd.hold("local", WORKERS)
    assert crowd.fill(("a", "b", "c")) == CAPACITY
    assert crowd.depth() == CAPACITY
    assert crowd.refusal("light") == "queue_saturated"
    for job_id in held:
        crowd.cancel("local", [job_id])
        assert eventually(SECONDS, lambda: crowd.depth() == CAPACITY - 1)
        assert crowd.refusal("light") == "accepted"
        assert crowd.refusal("light") == "queue_saturated"


def test_q2_the_tenants_limit_is_told_first_and_a_lease_is_of_both(crowd: Crowd) -> None:
    held = crowd.hold("local", WORKERS)
    assert crowd.fill("a") == TENANT_CAPACITY
    assert crowd.refusal("a") == "tenant_queue_saturated"
    assert crowd.fill("b") == CAPACITY - TENANT_CAPACITY
    assert crowd.refusal("c") == "queue_saturated"
    assert crowd.refusal("a") == "tenant_queue_saturated"
    crowd.cancel("local", held[:1])
    assert eventually(SECONDS, lambda: crowd.depth("a") == TENANT_CAPACITY - 1)
    assert crowd.refusal("a") == "accepted"
    assert crowd.refusal("a") == "tenant_queue_saturated"
    assert crowd.refusal("c") == "queue_saturated"


def test_q3_a_smaller_job_does_not_overtake_one_that_waits_for_memory(crowd: Crowd) -> None:
    (first,) = crowd.hold("local", 1, mem_mb=900)
    large = crowd.submit("a", mem_mb=1024)
    small = crowd.submit("b", mem_mb=512)  # there is room for it, and a free worker
    for _ in range(20):
        assert crowd.running() == 1
    crowd.cancel("local", [first])
    before, at_once, later = (
        crowd.over(tenant, job_id)
        for tenant, job_id in (("local", first), ("a", large), ("b", small))
    )
    # Not enough is left beside the large one, so that it must be over first.
    assert before.finished_at_ms <= at_once.started_at_ms
    assert at_once.finished_at_ms <= later.started_at_ms
    assert (at_once.status, later.status) == ("succeeded", "succeeded")


def test_q4_a_tenant_at_its_concurrency_does_not_delay_another(tmp_path: Path) -> None:
    with plain(tmp_path, TENANT_CONCURRENCY="1") as crowd:
        (first,) = crowd.hold("a", 1)
        second = crowd.submit("a")
        assert crowd.over("b", crowd.submit("b")).status == "succeeded"
        assert crowd.scheduler("a")["running"] == 1
        assert crowd.status("a", second) == "queued"
        crowd.cancel("a", [first])
        assert crowd.over("a", second).started_at_ms >= crowd.over("a", first).finished_at_ms


def leave_queued(crowd: Crowd, count: int) -> list[str]:
    """Have a tenant's jobs outlive the process that accepted them."""
    with crowd:
        crowd.hold("b", WORKERS)
        queued = crowd.submit_many("a", count, SLEEP)
        assert crowd.stop() == 0
    return queued


def test_q5_recovered_work_above_its_tenants_limit_blocks_only_that_tenant(tmp_path: Path) -> None:
    crowd = plain(tmp_path)
    recovered = leave_queued(crowd, 7)
    crowd.gateway.settings["ROOKHOLD_TENANT_QUEUE_CAPACITY"] = str(limit := 3)
    with crowd:
        left = len(recovered) - WORKERS
        assert eventually(SECONDS, lambda: crowd.depth("a") == left)
        crowd.submit("b")
        for job_id in recovered[: left - limit + 1]:
            assert crowd.refusal("a") == "tenant_queue_saturated"
            crowd.cancel("a", [job_id])  # it runs; another takes its place
            left -= 1
            assert eventually(SECONDS, lambda: crowd.depth("a") == left)  # noqa: B023
        assert crowd.refusal("a") == "accepted"
        assert crowd.refusal("a") == "tenant_queue_saturated"


CLOSING = """
import time
from pathlib import Path
from rookhold_server.jobs.admission import AdmissionClosedError
closed_at = []
close, readmit = QueueAdmission.close, QueueAdmission.readmit
def closes(self):
    closed_at.append(time.monotonic())
    close(self)
async def waits(self, tenant):
    try:
        return await readmit(self, tenant)
    except AdmissionClosedError:
        Path({told!r}).write_text(str(time.monotonic() - closed_at[0]))
        raise
QueueAdmission.close, QueueAdmission.readmit = closes, waits
"""


def test_q6_who_waits_for_a_slot_is_told_at_once_that_none_will_come(tmp_path: Path) -> None:
    crowd = plain(tmp_path)
    queued = leave_queued(crowd, 8)
    told = tmp_path / "told"
    changes = SMALL_QUEUE.format(capacity=3) + CLOSING.format(told=str(told))
    gateway = crowd.gateway
    gateway.python = altered(tmp_path / "python", changes)
    ready = gateway.begin()
    try:
        with Book(gateway.database) as book:
            assert eventually(SECONDS, lambda: book.count_running() == WORKERS)
            # Three are queued and the others wait, so that it never becomes ready.
            began = time.monotonic()
            assert gateway.stop() == 0
            assert time.monotonic() - began < 30
            assert float(told.read_text("ascii")) < 0.25
            left = [job_id for job_id in queued if book.status(job_id) == "queued"]
            assert left == queued[WORKERS:]
            assert os.read(ready, 1) == b""
    finally:
        os.close(ready)
        gateway.__exit__(None, None, None)


def at_once(jobs: list[JobDetail]) -> list[list[JobDetail]]:
    """For each job, those that ran when it began, itself included."""
    return [
        [other for other in jobs if other.started_at_ms <= job.started_at_ms < other.finished_at_ms]
        for job in jobs
    ]


def test_q10_what_runs_at_once_stays_within_workers_and_memory(crowd: Crowd) -> None:
    held = crowd.hold("local", WORKERS)
    sizes = {"a": (800, 600, 800, 100), "b": (800, 800, 500, 600), "c": (1024, 16, 900, 400)}
    asked = [
        (tenant, crowd.submit(tenant, "sleep 0.05", mem_mb=mem_mb))
        for tenant, mine in sizes.items()
        for mem_mb in mine
    ]
    crowd.cancel("local", held)
    jobs = [crowd.over(tenant, job_id) for tenant, job_id in asked]
    assert {job.status for job in jobs} == {"succeeded"}
    groups = at_once(jobs)
    memory = [sum(job.requested_spec["limits"]["mem_mb"] for job in group) for group in groups]
    assert max(len(group) for group in groups) == WORKERS
    assert max(memory) <= BUDGET_MB
    assert eventually(SECONDS, lambda: crowd.depth() == crowd.running() == 0)


@pytest.mark.anyio
async def test_q10_permits_are_those_of_jobs_in_a_workers_hands(kit: Any, submit: Any) -> None:
    """Inside: ready jobs beyond the workers hold nothing, and a job holds until it is finalised."""
    kit.set(workers=2, tenant_concurrency=2)
    async with kit.running() as engine:
        queue = engine._dispatcher._queue
        ids = [(await submit(engine, limits={"mem_mb": 100})).job_id for _ in range(7)]
        for ended in range(len(ids)):
            run = await kit.executor.next_run()
            rest = min(2, len(ids) - ended)
            if rest == 2:
                other = await kit.executor.next_run()
                kit.executor._fresh.appendleft(other)
            assert (queue.running("acme"), queue.held_mb) == (rest, rest * 100)
            run.end()
            assert await engine.wait_terminal("acme", run.plan.job_id, SECONDS)


def test_q13_a_turn_is_three_jobs_of_one_tenant_and_one_of_the_other(crowd: Crowd) -> None:
    kept, released = crowd.hold("local", WORKERS)  # so that one worker takes all, one by one
    jobs = {crowd.submit(tenant): tenant for tenant in ("heavy", "light") for _ in range(6)}
    crowd.cancel("local", [released])
    ran = [crowd.over(tenant, job_id) for job_id, tenant in jobs.items()]
    ran.sort(key=lambda job: (job.started_at_ms, job.finished_at_ms))
    order = "".join(job.tenant[0] for job in ran)
    assert order == "hhhlhhhlllll"
    crowd.cancel("local", [kept])
