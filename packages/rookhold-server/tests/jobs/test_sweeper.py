"""Retention at work in the server: when it runs, what it tells, and what stops it."""

import logging

import anyio
import pytest

from rookhold_server.jobs.ages import WatchedClock
from rookhold_server.jobs.sweeper import BATCHES, Sweeper
from rookhold_server.refusal import Refusal
from rookhold_store import StorageUnavailableError, Swept
from rookhold_store.testing import Jobs

pytestmark = pytest.mark.anyio
TENANT = "acme"
HOUR = 3_600_000
NOW = 1_790_000_000_000


class Answers:
    """A store that answers sweeps as it is told."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.idle = anyio.Event()

    async def run(self, operation, *, large=False):
        self.asked.append(operation)
        if len(self.answers) == 1:
            self.idle.set()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def swept(jobs=0, events=0, *, more=False, hidden=()):
    return Swept(jobs_deleted=jobs, events_deleted=events, more_remaining=more, hidden=hidden)


def sweeper(store, *, interval=3600.0, removed=None, age_ms=HOUR):
    return Sweeper(
        store=store,
        clock=WatchedClock(lambda: NOW, lambda: 0),
        age_ms=age_ms,
        interval_seconds=interval,
        removed=(lambda job_id: None) if removed is None else removed,
    )


async def test_a_run_is_sixteen_transactions_at_most_and_asks_for_another():
    store = Answers(*[swept(64, 256, more=True)] * (BATCHES + 1))
    assert await sweeper(store).sweep()
    assert len(store.asked) == BATCHES == 16
    assert {(op.now_ms, op.age_ms, op.max_jobs) for op in store.asked} == {(NOW, HOUR, 64)}


@pytest.mark.parametrize("last", [swept(3, 12), swept(), swept(more=True)])
async def test_a_run_ends_where_nothing_is_left_or_nothing_was_done(last):
    store = Answers(swept(64, 256, more=True), last)
    assert not await sweeper(store).sweep()
    assert len(store.asked) == 2


async def test_a_failure_is_logged_and_waits_for_the_next_run(caplog):
    store = Answers(swept(64, 256, more=True), StorageUnavailableError("no"), swept(1, 4))
    task = sweeper(store, interval=0.001)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(task.run)
            await store.idle.wait()
            task.stop()
    assert len(store.asked) == 3
    assert "storage_unavailable" in caplog.text


async def test_stopping_ends_a_run_between_two_transactions():
    store = Answers(*[swept(64, 256, more=True)] * 3)
    task = sweeper(store, removed=lambda job_id: task.stop())
    store.answers[1] = swept(64, 256, more=True, hidden=("a",))
    with anyio.fail_after(30):
        await task.run()
    assert len(store.asked) == 2


async def test_a_clock_that_was_set_is_told_once(caplog):
    times = [NOW]
    store = Answers(*[swept()] * 4)
    task = sweeper(store)
    task._clock = WatchedClock(lambda: times[0], lambda: 0)
    for times[0] in (NOW, NOW + HOUR, NOW + HOUR, NOW + HOUR):
        await task.sweep()
    assert [op.now_ms for op in store.asked] == [NOW] * 4
    assert caplog.text.count("the clock was set") == 1


async def until(condition):
    with anyio.fail_after(60):
        while not condition():
            await anyio.sleep(0.005)


async def test_old_jobs_go_at_the_start_and_young_or_unfinished_ones_stay(kit, submit, finished):
    jobs = Jobs(kit.store)
    old = [jobs.finished(tenant=TENANT, key=f"k{n}") for n in range(70)]
    kit.clock.advance(2 * HOUR)
    young = jobs.finished(tenant=TENANT)
    kit.set(retention_hours=1)
    async with kit.running() as engine:
        await until(lambda: len(kit.store.read.list_jobs(TENANT, 500)) == 1)
        assert await engine.summary(TENANT, young) is not None
        for call in (
            engine.detail(TENANT, old[0]),
            engine.result(TENANT, old[0]),
            engine.replay(TENANT, old[0], 0, 10),
            engine.attestation(TENANT, old[0]),
            engine.cancel(TENANT, old[0]),
        ):
            with pytest.raises(Refusal) as refused:
                await call
            assert refused.value.code == "job_not_found"
        again = await submit(engine, key="k0", code="print('with the key of a job that is gone')")
        assert not again.replayed
        (await kit.executor.next_run()).end()
        await finished(engine, again.job_id)


async def test_zero_hours_keep_everything(kit):
    old = Jobs(kit.store).finished(tenant=TENANT)
    kit.clock.advance(100_000 * HOUR)
    async with kit.running() as engine:
        assert engine._sweeper is None
        assert await engine.summary(TENANT, old) is not None


async def test_whoever_follows_a_job_that_is_removed_is_let_go(kit, signing_key):
    kit.key = signing_key
    old = Jobs(kit.store).finished(tenant=TENANT)
    kit.clock.advance(2 * HOUR)
    kit.set(retention_hours=1, sweep_interval_seconds=0.01)
    engine = kit.engine()
    engine._signer.stop()  # so that the attestation is awaited for ever
    live, signature = engine.live.open(old), engine._signatures.open(old)
    follower = live.subscribe()
    async with kit.running(engine):
        with anyio.fail_after(60):
            await follower.wait()
            await signature.wait()
        assert live.ended
        assert signature.ended
        assert engine.live.get(old) is None
        await engine.wait_attestation(TENANT, old, 30)  # returns at once
        with pytest.raises(Refusal) as refused:
            await engine.detail(TENANT, old)
        assert refused.value.code == "job_not_found"


async def test_a_sweeper_that_ends_by_itself_is_fatal(kit, caplog):
    caplog.set_level(logging.CRITICAL)
    kit.set(retention_hours=1)
    engine = kit.engine()
    engine._sweeper.stop()
    with anyio.fail_after(60):
        await engine.run(started=lambda: None)
    assert engine.fatal == "sweeper returned unexpectedly"
