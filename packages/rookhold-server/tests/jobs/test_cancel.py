"""Cancelling queued and running jobs, and what becomes of them."""

from concurrent.futures import Future

import anyio
import pytest

from rookhold_exec.executor import KillReason
from rookhold_server.jobs.values import TenantStatus
from rookhold_server.refusal import Refusal
from rookhold_store import CancelQueued, StorageFullError

pytestmark = pytest.mark.anyio
TENANT = "acme"


async def test_a_queued_job_is_cancelled_without_execution_and_only_once(kit, submit):
    kit.set(workers=1)
    async with kit.running() as engine:
        await submit(engine)
        busy = await kit.executor.next_run()
        waiting = await submit(engine)
        answer = await engine.cancel(TENANT, waiting.job_id)
        assert (answer.job.status, answer.cancellation_requested, answer.already_terminal) == (
            "cancelled",
            True,
            False,
        )
        again = await engine.cancel(TENANT, waiting.job_id)
        assert (again.job.status, again.cancellation_requested, again.already_terminal) == (
            "cancelled",
            False,
            True,
        )
        assert await engine.wait_terminal(TENANT, waiting.job_id, 5)
        busy.end()
        later = await submit(engine)
        run = await kit.executor.next_run()  # the cancelled job's turn has passed
        assert run.plan.job_id == later.job_id
    assert kit.kinds(waiting.job_id) == ["accepted", "finished"]
    receipt = kit.receipt(waiting.job_id)
    assert receipt["killed_by"] == "cancelled_before_start"
    assert receipt["started_at_ms"] is None
    assert receipt["resource_usage"] is None


async def test_a_cancelled_job_keeps_its_queue_slot_until_its_turn(kit, submit):
    kit.set(workers=1, tenant_queue_capacity=5)
    async with kit.running() as engine:
        await submit(engine)
        busy = await kit.executor.next_run()
        first, second = await submit(engine), await submit(engine)
        await engine.cancel(TENANT, first.job_id)
        assert engine.tenant_status(TENANT).queue_depth == 2
        assert (await engine.detail(TENANT, second.job_id)).queue.position == 1
        busy.end()
        await kit.executor.next_run()
        assert engine.tenant_status(TENANT).queue_depth == 0


async def test_a_running_job_is_killed_and_ends_cancelled(kit, submit, finished):
    async with kit.running() as engine:
        submitted = await submit(engine)
        run = await kit.executor.next_run()
        await run.print("before\n")
        answer = await engine.cancel(TENANT, submitted.job_id)
        assert answer.job.status == "running"
        detail = await finished(engine, submitted.job_id)
        assert run.kills == [KillReason.CANCELLED]
        assert (detail.status, detail.receipt["killed_by"]) == ("cancelled", "cancelled")
        assert (await engine.result(TENANT, submitted.job_id)).stdout == "before\n"
        assert (await engine.cancel(TENANT, submitted.job_id)).already_terminal


async def test_a_cancel_that_comes_while_the_sandbox_starts_leaves_nothing_of_it(
    kit, submit, finished
):
    kit.executor.start_gate = anyio.Event()
    async with kit.running() as engine:
        submitted = await submit(engine)
        while (await engine.summary(TENANT, submitted.job_id)).status != "running":
            await anyio.sleep(0.002)
        await engine.cancel(TENANT, submitted.job_id)
        detail = await finished(engine, submitted.job_id)
    assert kit.executor.abandoned_starts == 1
    assert kit.executor.runs == []
    assert detail.status == "cancelled"
    assert detail.receipt["killed_by"] == "cancelled_before_launch"
    assert detail.receipt["bootstrap_ready"] is False
    assert detail.receipt["controls"] == []


async def test_every_cancel_of_a_crowd_ends_every_job_exactly_once(kit, submit):
    kit.set(workers=2)
    kit.executor.script = lambda run: _end_soon(run)
    async with kit.running() as engine:
        submitted = [await submit(engine) for _ in range(24)]
        async with anyio.create_task_group() as tasks:
            for index, one in enumerate(submitted):
                if index % 3:
                    tasks.start_soon(engine.cancel, TENANT, one.job_id)
        for one in submitted:
            assert await engine.wait_terminal(TENANT, one.job_id, 30)
        # A job that was cancelled in the queue keeps its place there until its turn.
        with anyio.fail_after(10):
            while engine.tenant_status(TENANT) != TenantStatus(queue_depth=0, running=0):
                await anyio.sleep(0.01)
    ran = set(kit.executor.started_ids)
    for one in submitted:
        assert kit.kinds(one.job_id).count("finished") == 1
        cancelled_in_queue = kit.receipt(one.job_id)["killed_by"] == "cancelled_before_start"
        assert not (cancelled_in_queue and one.job_id in ran)


async def test_another_tenants_queue_is_not_ours_to_see(kit, submit):
    kit.set(workers=1)
    async with kit.running() as engine:
        await submit(engine, tenant="other")
        await kit.executor.next_run()
        await submit(engine, tenant="other")
        assert engine.tenant_status("other").queue_depth == 1
        assert engine.tenant_status("other").running == 1
        assert engine.tenant_status(TENANT).queue_depth == 0
        assert engine.tenant_status(TENANT).running == 0


async def _end_soon(run):
    await anyio.sleep(0.002)
    if not run.kills:
        run.end()


class FullFor:
    """A store on a disk that is full whenever an operation of one kind comes."""

    def __init__(self, store, kind):
        self._store = store
        self._kind = kind
        self.read = store.read
        self.full = True

    def submit(self, op):
        if self.full and isinstance(op, self._kind):
            failed = Future()
            failed.set_exception(StorageFullError("the file system is full"))
            return failed
        return self._store.submit(op)


async def test_a_cancel_that_a_full_disk_cannot_hold_says_so_and_may_be_repeated(kit, submit):
    kit.set(workers=1)
    store = FullFor(kit.store, CancelQueued)
    engine = kit.engine(store=store)
    async with kit.running(engine):
        await submit(engine)
        busy = await kit.executor.next_run()
        waiting = await submit(engine)
        with pytest.raises(Refusal) as refused:
            await engine.cancel(TENANT, waiting.job_id)
        assert (refused.value.code, refused.value.fact.status) == ("storage_reserve", 507)
        assert (await engine.detail(TENANT, waiting.job_id)).status == "queued"
        store.full = False
        answer = await engine.cancel(TENANT, waiting.job_id)
        assert answer.job.status == "cancelled"
        busy.end()
    assert kit.kinds(waiting.job_id) == ["accepted", "finished"]
    assert len(kit.executor.runs) == 1
