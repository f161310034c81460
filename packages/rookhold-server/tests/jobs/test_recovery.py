"""After a restart: every job has one end, queued ones run, running ones never again."""

import anyio
import pytest

from rookhold_server.refusal import Refusal
from rookhold_store import RecoverRunning, Start, StorageUnavailableError
from rookhold_types import check_chain, fingerprint

pytestmark = pytest.mark.anyio
TENANT = "acme"


async def _end(run):
    run.end()


@pytest.fixture
def stored(kit, job):
    """A job as an earlier process accepted it, and perhaps started it."""
    from rookhold_store import Accept
    from rookhold_types import new_job_id

    def put(*, tenant=TENANT, started=False, admitted_mem_mb=256, **members):
        spec = job(**members)
        job_id = new_job_id()
        kit.store.call(
            Accept(
                job_id=job_id,
                tenant=tenant,
                language=spec.language,
                spec=spec.stored(),
                admitted_mem_mb=admitted_mem_mb,
                now_ms=kit.clock(),
                fingerprint=fingerprint(spec),
            )
        )
        if started:
            kit.store.call(Start(job_id=job_id, now_ms=kit.clock()))
        return job_id

    return put


async def test_running_jobs_end_as_errors_and_queued_ones_run(kit, stored):
    running = [stored(started=True) for _ in range(40)]
    queued = [stored() for _ in range(5)]
    kit.executor.script = _end
    kit.clock.advance(5000)
    async with kit.running() as engine:
        for job_id in queued:
            assert await engine.wait_terminal(TENANT, job_id, 30)
    for job_id in running:
        row = kit.row(job_id)
        receipt = kit.receipt(job_id)
        assert (row.status, receipt["killed_by"]) == ("error", "server_restarted")
        assert receipt["terminal_reason"] == "server_restarted"
        assert receipt["duration_ms"] == 5000
        assert receipt["evidence_complete"] is False
        assert kit.kinds(job_id) == ["accepted", "started", "finished"]
        assert check_chain(job_id, kit.events(job_id)).complete
    assert sorted(kit.executor.started_ids) == sorted(queued)
    for job_id in queued:
        assert kit.row(job_id).status == "succeeded"
        assert kit.kinds(job_id).count("finished") == 1


async def test_a_second_start_recovers_nothing_twice(kit, stored):
    job_id = stored(started=True)
    for _ in range(2):
        async with kit.running():
            pass
        kit.reopen()
    assert kit.kinds(job_id).count("finished") == 1


async def test_recovered_work_above_a_tenants_limit_blocks_only_that_tenant(kit, stored, submit):
    kit.set(workers=1, tenant_queue_capacity=2)
    for _ in range(4):
        stored()
    async with kit.running() as engine:
        run = await kit.executor.next_run()
        assert engine.tenant_status(TENANT).queue_depth == 3
        with pytest.raises(Refusal) as refused:
            await submit(engine)
        assert refused.value.code == "tenant_queue_saturated"
        await submit(engine, tenant="other")
        for _ in range(2):
            run.end()
            run = await kit.executor.next_run()
            if run.plan.job_id not in kit.executor.started_ids[:1]:
                await anyio.lowlevel.checkpoint()
        while engine.tenant_status(TENANT).queue_depth >= 2:
            run.end()
            run = await kit.executor.next_run()
        await submit(engine)


async def test_more_queued_rows_than_the_queue_holds_come_back_as_slots_free(kit, stored):
    kit.set(queue_capacity=4, tenant_queue_capacity=4, workers=1, tenant_concurrency=1)
    ids = [stored() for _ in range(12)]
    kit.executor.script = _end
    async with kit.running() as engine:
        for job_id in ids:
            assert await engine.wait_terminal(TENANT, job_id, 30)
    assert kit.executor.started_ids == ids


async def test_admitted_memory_is_kept_under_a_higher_ceiling_and_tightened_under_a_lower(
    kit, stored
):
    kit.executor.script = _end
    wanted = {"limits": {"mem_mb": 2048}}
    first = stored(admitted_mem_mb=512, **wanted)
    kit.set(max_job_mem_mb=1024)
    async with kit.running() as engine:
        assert await engine.wait_terminal(TENANT, first, 30)
    second = stored(admitted_mem_mb=512, **wanted)
    kit.set(max_job_mem_mb=256)
    async with kit.running() as engine:
        assert await engine.wait_terminal(TENANT, second, 30)
    ran_with = {run.plan.job_id: run.plan.limits.mem_mb for run in kit.executor.runs}
    assert ran_with == {first: 512, second: 256}
    assert {kit.row(first).status, kit.row(second).status} == {"succeeded"}
    assert kit.row(second).admitted_mem_mb == 512


class Stubborn:
    """Refuses to recover one job some times."""

    def __init__(self, store, job_id, failures):
        self._store, self._job_id, self.failures = store, job_id, failures
        self.read = store.read

    def submit(self, op):
        if isinstance(op, RecoverRunning) and op.job_id == self._job_id and self.failures:
            self.failures -= 1
            from concurrent.futures import Future

            failed = Future()
            failed.set_exception(StorageUnavailableError("not now"))
            return failed
        return self._store.submit(op)


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr("rookhold_server.jobs.recovery.recovery_retry", lambda: iter([0.001] * 9))


@pytest.mark.usefixtures("no_waiting")
async def test_a_row_that_fails_seven_times_is_recovered(kit, stored):
    job_id = stored(started=True)
    engine = kit.engine(store=Stubborn(kit.store, job_id, 7))
    async with kit.running(engine):
        pass
    assert (engine.fatal, kit.row(job_id).status) == (None, "error")


@pytest.mark.usefixtures("no_waiting")
async def test_a_row_that_cannot_be_recovered_is_fatal_and_stays_as_it_was(kit, stored):
    before, stuck, after = (stored(started=True) for _ in range(3))
    engine = kit.engine(store=Stubborn(kit.store, stuck, 8))
    with anyio.fail_after(10):
        await engine.run(started=lambda: pytest.fail("it must not start"))
    assert engine.fatal == "start-up recovery failed: storage_unavailable"
    assert engine.shutting_down
    assert not engine.recovered
    assert [kit.row(one).status for one in (before, stuck, after)] == [
        "error",
        "running",
        "running",
    ]
    async with kit.running() as repeated:
        assert repeated.fatal is None
    assert {kit.row(one).status for one in (stuck, after)} == {"error"}


async def test_shutdown_cuts_a_recovery_that_does_not_get_on(kit, stored):
    job_id = stored(started=True)
    kit.set(recovery_grace_seconds=0.05)
    engine = kit.engine(store=Stubborn(kit.store, job_id, 1000))
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: engine.run(started=lambda: None))
            await anyio.sleep(0.05)
            engine.begin_shutdown()
    assert engine.fatal is None
    assert kit.row(job_id).status == "running"


async def test_a_stored_spec_that_no_longer_decodes_ends_with_the_core_members(kit):
    from rookhold_store import Accept
    from rookhold_types import canonical_sha256, new_job_id

    job_id = new_job_id()
    spec = {"language": "python", "from_another_version": True}
    kit.store.call(
        Accept(
            job_id=job_id,
            tenant=TENANT,
            language="python",
            spec=spec,
            admitted_mem_mb=256,
            now_ms=kit.clock(),
            fingerprint=canonical_sha256(spec),
        )
    )
    async with kit.running() as engine:
        assert await engine.wait_terminal(TENANT, job_id, 30)
        detail = await engine.detail(TENANT, job_id)
    assert (detail.status, detail.receipt["killed_by"]) == ("error", "invalid_stored_spec")
    assert detail.requested_spec == spec
    assert "code_sha256" not in detail.receipt
    assert kit.executor.runs == []


async def test_a_job_cancelled_after_its_page_was_read_does_not_come_back(kit, stored):
    from rookhold_store import CancelQueued

    ids = [stored() for _ in range(3)]
    engine = kit.engine()
    whole = engine._recovery._queued_after

    async def queued_after(after):
        page = await whole(after)
        if after is None:
            kit.store.call(CancelQueued(tenant=TENANT, job_id=ids[0], now_ms=kit.clock()))
        return page

    engine._recovery._queued_after = queued_after
    assert await engine._recovery.readmit_queued() == 2
    assert engine.tenant_status(TENANT).queue_depth == 2
    assert engine.live.get(ids[0]) is None


async def test_queued_jobs_of_an_earlier_process_have_a_place_in_the_queue(kit, stored, submit):
    kit.set(workers=1)
    ids = [stored() for _ in range(3)]
    engine = kit.engine()
    assert (await engine.detail(TENANT, ids[2])).queue.position == 3
    async with kit.running(engine):
        await kit.executor.next_run()
        assert (await engine.detail(TENANT, ids[2])).queue.position == 2
