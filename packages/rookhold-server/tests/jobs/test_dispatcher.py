"""Workers and jobs brought together, over a whole engine."""

import anyio
import msgspec
import pytest

from rookhold_types import Control

pytestmark = pytest.mark.anyio
TENANT = "acme"


async def test_a_waiting_second_job_of_one_tenant_does_not_delay_another(kit, submit):
    kit.set(workers=2, tenant_concurrency=1)
    async with kit.running() as engine:
        first = await submit(engine, tenant="a")
        second = await submit(engine, tenant="a")
        other = await submit(engine, tenant="b")
        runs = [await kit.executor.next_run(), await kit.executor.next_run()]
        assert {run.plan.job_id for run in runs} == {first.job_id, other.job_id}
        assert kit.row(second.job_id).status == "queued"
        assert {run.plan.slot for run in runs} == {0, 1}
        runs[0].end()
        assert (await kit.executor.next_run()).plan.job_id == second.job_id


async def test_a_smaller_job_does_not_overtake_one_that_waits_for_memory(kit, submit):
    kit.set(workers=3, tenant_concurrency=3, memory_budget_mb=1536)
    async with kit.running() as engine:
        await submit(engine, limits={"mem_mb": 1024})
        running = await kit.executor.next_run()
        large = await submit(engine, limits={"mem_mb": 1024})
        small = await submit(engine, limits={"mem_mb": 512})
        await anyio.wait_all_tasks_blocked()
        assert len(kit.executor.runs) == 1
        running.end()
        after = {(await kit.executor.next_run()).plan.job_id for _ in range(2)}
        assert after == {large.job_id, small.job_id}


async def test_a_workspace_that_is_not_charged_to_the_job_counts_in_its_permit(kit, submit):
    kit.executor.posture = msgspec.structs.replace(
        kit.executor.posture,
        controls=(Control.WORKSPACE_QUOTA.value,),
        tmpfs_charged_to_job=False,
    )
    kit.set(workers=2, memory_budget_mb=600)
    async with kit.running() as engine:
        await submit(engine, limits={"mem_mb": 256})  # and 64 MiB of workspace
        await submit(engine, limits={"mem_mb": 256})
        run = await kit.executor.next_run()
        await anyio.wait_all_tasks_blocked()
        assert len(kit.executor.runs) == 1
        run.end()
        await kit.executor.next_run()


async def test_permits_are_held_until_finalisation_has_returned(kit, submit, finished):
    kit.set(workers=2, tenant_concurrency=2, memory_budget_mb=512)
    kit.executor.script = _end
    async with kit.running() as engine:
        ids = [(await submit(engine, tenant=f"t{n % 3}")).job_id for n in range(20)]
        held = engine._dispatcher._queue
        for n, job_id in enumerate(ids):
            assert held.held_mb <= 512
            await finished(engine, job_id, f"t{n % 3}")
            assert sum(held.running(f"t{n}") for n in range(3)) <= 2
        while held.held_mb:  # the end is told a moment before the last of them is given back
            await anyio.sleep(0.001)


async def test_a_queued_job_has_a_place_and_an_estimate_once_something_ran(kit, submit, finished):
    kit.set(workers=1)
    async with kit.running() as engine:
        first = await submit(engine)
        run = await kit.executor.next_run()
        second, third = await submit(engine), await submit(engine)
        queue = (await engine.detail(TENANT, third.job_id)).queue
        assert (queue.position, queue.estimated_wait_ms) == (2, None)
        detail = await engine.detail(TENANT, second.job_id)
        assert detail.effective_spec is None
        assert set(msgspec.structs.asdict(detail.execution_policy).values()) == {None}
        assert detail.receipt is None
        await anyio.sleep(0.02)
        run.end()
        assert (await finished(engine, first.job_id)).queue is None
        await kit.executor.next_run()
        queue = (await engine.detail(TENANT, third.job_id)).queue
        assert queue.position == 1
        assert queue.estimated_wait_ms >= 15
        assert (await engine.detail(TENANT, second.job_id)).queue is None


async def test_the_estimate_heeds_weights_and_not_what_was_cancelled_in_the_queue(
    kit, submit, finished
):
    kit.set(workers=1, tenant_weights={"a": 3})
    async with kit.running() as engine:
        dispatcher = engine._dispatcher
        first = await submit(engine, tenant="a")
        run = await kit.executor.next_run()
        gone = [await submit(engine, tenant="a") for _ in range(20)]
        for each in gone:
            await engine.cancel("a", each.job_id)
        await anyio.sleep(0.05)
        run.end()
        await finished(engine, first.job_id, "a")
        await submit(engine, tenant="a")
        await kit.executor.next_run()
        waiting = {tenant: (await submit(engine, tenant=tenant)).job_id for tenant in "ab"}
        await anyio.wait_all_tasks_blocked()
        told = {tenant: dispatcher.place(tenant, job_id) for tenant, job_id in waiting.items()}
    assert [place.position for place in told.values()] == [1, 1]
    assert told["a"].estimated_wait_ms >= 50  # of the one run; the cancelled ones took no time
    assert told["b"].estimated_wait_ms == pytest.approx(3 * told["a"].estimated_wait_ms, abs=3)


async def test_a_noisy_tenant_does_not_keep_another_waiting(kit, submit, finished):
    kit.set(tenant_queue_capacity=400)
    order = []

    async def script(run):
        order.append(run.plan.code)
        await anyio.sleep(0.001)
        run.end()

    kit.executor.script = script
    async with kit.running() as engine:
        for _ in range(60):
            await submit(engine, tenant="noisy", code="noisy")
        quiet = [await submit(engine, tenant="quiet", code="quiet") for _ in range(3)]
        before = len(order)
        for one in quiet:
            await finished(engine, one.job_id, "quiet")
    last = max(place for place, code in enumerate(order) if code == b"quiet")
    assert last - before < 15


async def _end(run):
    await anyio.sleep(0.001)
    run.end()
