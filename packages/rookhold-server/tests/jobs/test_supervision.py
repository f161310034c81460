"""Shutdown and faults: what ends, what stays, what is told."""

import anyio
import pytest

from rookhold_exec.executor import KillReason
from rookhold_server.jobs.worker import Worker
from rookhold_server.refusal import Refusal

pytestmark = pytest.mark.anyio
TENANT = "acme"


async def test_shutdown_cancels_running_jobs_keeps_queued_ones_and_is_no_fault(kit, submit):
    kit.set(workers=1)
    async with kit.running() as engine:
        running = await submit(engine)
        run = await kit.executor.next_run()
        queued = [await submit(engine) for _ in range(3)]
        engine.begin_shutdown()
        engine.begin_shutdown()
        assert engine.shutting_down
        assert engine.shutdown_event.is_set()
    assert engine.fatal is None
    assert run.kills == [KillReason.SHUTDOWN]
    assert kit.row(running.job_id).status == "cancelled"
    assert {kit.row(one.job_id).status for one in queued} == {"queued"}
    kit.executor.script = _end
    async with kit.running() as again:
        for one in queued:
            assert await again.wait_terminal(TENANT, one.job_id, 30)
    assert {kit.row(one.job_id).status for one in queued} == {"succeeded"}


async def test_shutdown_before_anything_was_started_returns_at_once(kit):
    engine = kit.engine()
    engine.begin_shutdown()
    with anyio.fail_after(5):
        await engine.run(started=lambda: None)
    assert engine.fatal is None


async def test_a_job_cut_off_by_the_grace_limit_stays_running_until_the_next_start(kit, submit):
    kit.set(worker_grace_seconds=0.05)
    async with kit.running() as engine:
        submitted = await submit(engine)
        run = await kit.executor.next_run()
        run.dies_when_killed = False
    assert kit.row(submitted.job_id).status == "running"
    assert engine.fatal is None
    kit.reopen()
    async with kit.running():
        pass
    assert kit.receipt(submitted.job_id)["killed_by"] == "server_restarted"


async def test_a_worker_that_fails_is_fatal_and_closes_admission(kit, submit, monkeypatch):
    async def broken(self, grant):
        raise KeyError("a bug of ours")

    monkeypatch.setattr(Worker, "take", broken)
    engine = kit.engine()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            started = anyio.Event()
            tasks.start_soon(lambda: engine.run(started=started.set))
            await started.wait()
            while not engine.recovered:
                await anyio.sleep(0.001)
            await submit(engine)
            await engine.shutdown_event.wait()
            with pytest.raises(Refusal) as refused:
                await submit(engine)
            assert refused.value.code == "shutting_down"
    assert engine.fatal.startswith("worker ")
    assert engine.fatal.endswith("failed: KeyError")


@pytest.mark.parametrize("part", ["_dispatcher", "worker"])
async def test_an_unexpected_return_is_fatal(kit, part):
    engine = kit.engine()

    async def back():
        return None

    if part == "worker":
        engine._workers[0].run = back
    else:
        engine._dispatcher.run = back
    with anyio.fail_after(20):
        await engine.run(started=lambda: None)
    assert engine.fatal.endswith("returned unexpectedly")


async def test_a_failure_found_while_joining_is_still_reported(kit, submit, monkeypatch):
    whole = Worker.take

    async def late(self, grant):
        await whole(self, grant)
        raise OSError("too late")

    monkeypatch.setattr(Worker, "take", late)
    async with kit.running() as engine:
        await submit(engine)
        await kit.executor.next_run()
        engine.begin_shutdown()
        assert engine.fatal is None
    assert engine.fatal.endswith("failed: OSError")


async def test_the_first_diagnosis_is_kept(kit):
    engine = kit.engine()
    engine._supervisor.diagnose("first")
    engine._supervisor.diagnose("second")
    assert engine.fatal == "first"


async def test_a_reservation_made_before_closing_may_still_commit_and_stays_queued(kit, submit):
    answers = []
    async with kit.running() as engine:

        async def one():
            answers.append(await submit(engine))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one)
            await anyio.lowlevel.checkpoint()
            engine.begin_shutdown()
        assert engine.tenant_status(TENANT).queue_depth == 0
    assert kit.row(answers[0].job_id).status == "queued"


async def _end(run):
    run.end()
