"""FR-15: a tenant with a deep backlog, or with many keys, gets no more than its turn.

About the queue, which no backend has a part in: one is enough. The gateway has a tenant for each
part to play.
"""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from gateway import Gateway, eventually
from isolating import NAMESPACES_DEV
from reports.site import SETTINGS, WORKERS

from rookhold import Rookhold

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rookhold.results import Job

pytestmark = list(NAMESPACES_DEV.marks)
TENANTS = ("noisy", "quiet", "a", "b", "c", "d", "e", "many")
KEYS_OF_MANY = 4
BACKLOG, SOAK_BACKLOG = 24, 300
WHOLE_QUEUE = 1000
LEVEL_SECONDS, LEVEL_SHARE = 60, 0.1
JOB = "sleep 0.1"
LIMITS = {"wall_seconds": 60, "mem_mb": 32}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    settings = {
        **SETTINGS,
        "ROOKHOLD_TENANT_QUEUE_CAPACITY": "1024",
        "ROOKHOLD_STORAGE_TENANT_MB": "65536",  # 32 of them for each unfinished job
        "ROOKHOLD_STORAGE_GLOBAL_MB": "131072",
    }
    home = tmp_path_factory.mktemp("gateway") / "home"
    gateway = Gateway(home, sandbox=NAMESPACES_DEV.name, **settings)
    keys = [f"{tenant}:{gateway.api_key}-{tenant}" for tenant in TENANTS]
    keys += [f"many:{gateway.api_key}-many-{n}" for n in range(KEYS_OF_MANY)]
    gateway.settings["ROOKHOLD_API_KEYS"] = ",".join(keys)
    with gateway:
        yield gateway


def client(gateway: Gateway, key: str) -> Rookhold:
    return Rookhold(f"http://{gateway.address}", f"{gateway.api_key}-{key}", timeout=120)


def submit(gateway: Gateway, key: str, count: int, code: str = JOB) -> list[str]:
    with client(gateway, key) as each:
        return [each.submit("bash", code, limits=LIMITS).job_id for _ in range(count)]


def finished(gateway: Gateway, jobs: Mapping[str, list[str]]) -> list[tuple[str, Job]]:
    """Wait for every tenant's jobs; return them by their start."""
    found = []
    for tenant, ids in jobs.items():
        with client(gateway, tenant) as each:
            for job_id in ids:
                assert each.wait(job_id, 300).status == "succeeded"
            mine = {job.job_id: job for job in each.jobs(page_size=500)}
            found += [(tenant, mine[job_id]) for job_id in ids]
    return sorted(found, key=lambda each: each[1].started_at_ms or 0)


def hold(gateway: Gateway) -> list[str]:
    """Keep every worker busy, so that what is submitted meanwhile is one choice for the queue."""
    return submit(gateway, "noisy", WORKERS, "sleep 60")


def release(gateway: Gateway, held: list[str]) -> None:
    with client(gateway, "noisy") as each:
        for job_id in held:
            each.cancel(job_id)


def run_backlog(gateway: Gateway, size: int) -> None:
    """A tenant with a backlog, then another with three jobs."""
    backlog = submit(gateway, "noisy", size)
    late = submit(gateway, "quiet", 3)
    with client(gateway, "quiet") as each:
        assert each.wait(late[-1], 300).status == "succeeded"
    with client(gateway, "noisy") as each:
        waiting = sum(job.status == "queued" for job in each.jobs(page_size=500))
        assert waiting > size // 3, "it did not wait for the backlog"
        order = finished(gateway, {"quiet": late})
        began = {job.job_id: job.started_at_ms for job in each.jobs(page_size=500)}
    asked, last = order[0][1].created_at_ms, order[-1][1].started_at_ms
    assert last is not None
    between = [
        job_id
        for job_id in backlog
        if (started := began[job_id]) is not None and asked < started < last
    ]
    assert len(between) <= 3 + 2 * WORKERS, "a few turns of the slots"
    with client(gateway, "noisy") as each:
        for job_id in backlog:
            each.cancel(job_id)
            each.wait(job_id, 60)


def test_three_jobs_do_not_wait_for_anothers_backlog(gateway: Gateway) -> None:
    run_backlog(gateway, BACKLOG)


@pytest.mark.soak
def test_three_jobs_do_not_wait_for_a_backlog_of_three_hundred(gateway: Gateway) -> None:
    run_backlog(gateway, SOAK_BACKLOG)


def run_single(gateway: Gateway, size: int) -> None:
    """One worker at a time comes free: whose job does it take?"""
    held = hold(gateway)
    backlog = submit(gateway, "noisy", size, "sleep 60")
    (single,) = submit(gateway, "quiet", 1, "true")
    with client(gateway, "noisy") as noisy, client(gateway, "quiet") as quiet:
        noisy.cancel(held[0])
        assert eventually(60, lambda: noisy.job(backlog[0]).status == "running")
        noisy.cancel(backlog[0])  # it was before the single one; nobody else is
        assert quiet.wait(single, 60).status == "succeeded"
        waiting = noisy.jobs(status="queued", page_size=500)
        left = [job.job_id for job in waiting]
        assert len(left) >= size - 2
        for job_id in left:
            noisy.cancel(job_id)
        for job_id in (held[1], *backlog[:2]):
            noisy.cancel(job_id)
            noisy.wait(job_id, 60)


def test_a_backlog_delays_a_single_job_by_one_turn_of_a_slot(gateway: Gateway) -> None:
    run_single(gateway, BACKLOG // 2)


@pytest.mark.soak
def test_so_does_a_backlog_of_a_thousand(gateway: Gateway) -> None:
    run_single(gateway, WHOLE_QUEUE)


def largest_lead(order: list[tuple[str, Job]]) -> int:
    """Return by how many starts one tenant was ever ahead of another."""
    counts = dict.fromkeys({tenant for tenant, _ in order}, 0)
    lead = 0
    for tenant, _ in order:
        counts[tenant] += 1
        lead = max(lead, max(counts.values()) - min(counts.values()))
    return lead


def test_five_tenants_of_equal_load_stay_level(gateway: Gateway) -> None:
    held = hold(gateway)
    jobs = {tenant: submit(gateway, tenant, 6) for tenant in "abcde"}
    release(gateway, held)
    assert largest_lead(finished(gateway, jobs)) <= 2


def keep_busy(gateway: Gateway, tenant: str, until: float) -> int:
    """Have some jobs of a tenant wait all the time; return how many were finished."""
    done = 0
    with client(gateway, tenant) as each:
        waiting = deque(submit(gateway, tenant, 4, "sleep 0.02"))
        while waiting:
            done += each.wait(waiting.popleft(), 300).status == "succeeded"
            if time.monotonic() < until:
                waiting.extend(submit(gateway, tenant, 1, "sleep 0.02"))
    return done


@pytest.mark.soak
def test_in_a_minute_of_equal_load_nobody_finishes_a_tenth_more_than_another(
    gateway: Gateway,
) -> None:
    until = time.monotonic() + LEVEL_SECONDS
    with ThreadPoolExecutor(5) as threads:
        done = list(threads.map(lambda tenant: keep_busy(gateway, tenant, until), "abcde"))
    print(f"finished in {LEVEL_SECONDS} s: {done}")
    assert max(done) - min(done) <= LEVEL_SHARE * max(done)


def test_a_tenant_alone_uses_every_slot(gateway: Gateway) -> None:
    held = hold(gateway)
    with client(gateway, "noisy") as noisy:
        assert eventually(60, lambda: noisy.status().scheduler["running"] == WORKERS)
    release(gateway, held)


def test_many_keys_share_the_one_turn_of_their_tenant(gateway: Gateway) -> None:
    held = hold(gateway)
    keys = [f"many-{n}" for n in range(KEYS_OF_MANY)]
    mine = [job_id for _ in range(2) for key in keys for job_id in submit(gateway, key, 1)]
    jobs = {"many": mine, "a": submit(gateway, "a", len(mine))}
    release(gateway, held)
    assert largest_lead(finished(gateway, jobs)) <= 2


def test_no_worker_is_idle_while_somebody_waits(gateway: Gateway) -> None:
    held = hold(gateway)
    jobs = {tenant: submit(gateway, tenant, 8, "sleep 0.3") for tenant in ("a", "quiet")}
    release(gateway, held)
    order = [job for _, job in finished(gateway, jobs)]
    starts = [job.started_at_ms or 0 for job in order]
    ends = sorted(job.finished_at_ms or 0 for job in order)
    # The one that starts now was let in by the end of the one two places before it.
    late = [start - end for start, end in zip(starts[WORKERS:], ends, strict=False)]
    assert sorted(late)[len(late) // 2] < 300, f"workers waited: {late} ms"
