"""Acceptance: refusals in their order, idempotency, and a commit whose end is unknown."""

import anyio
import msgspec
import pytest

from rookhold_server.refusal import Refusal
from rookhold_store import Accept, StorageUnavailableError, Sweep
from rookhold_types import JobSpec, JobStatus, fingerprint

pytestmark = pytest.mark.anyio
TENANT = "acme"


async def refused(call):
    with pytest.raises(Refusal) as caught:
        await call
    return caught.value.code


def all_jobs(kit):
    return kit.store.read.list_jobs(None, 501)


async def test_the_same_key_and_request_is_the_same_job_however_it_is_written(kit, job, submit):
    written_out = msgspec.json.decode(msgspec.json.encode(job("print(1)")), type=JobSpec)
    async with kit.running() as engine:
        first = await submit(engine, job("print(1)"), key="k")
        again = await submit(engine, written_out, key="k")
        assert (first.replayed, again.replayed) == (False, True)
        assert again.job_id == first.job_id
        assert await refused(submit(engine, job("print(2)"), key="k")) == "idempotency_key_reused"
    assert len(all_jobs(kit)) == 1


async def test_clamped_values_are_different_requests(kit, submit):
    async with kit.running() as engine:
        await submit(engine, limits={"wall_seconds": 99999}, key="k")
        again = submit(engine, limits={"wall_seconds": 300}, key="k")
        assert await refused(again) == "idempotency_key_reused"


async def test_twenty_equal_requests_at_once_make_one_job_that_runs_once(kit, submit, finished):
    answers = []
    kit.executor.script = lambda run: _end(run)

    async def one(engine):
        answers.append(await submit(engine, key="k"))

    async with kit.running() as engine:
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(one, engine)
        await finished(engine, answers[0].job_id)
        assert {answer.job_id for answer in answers} == {answers[0].job_id}
        assert [answer.replayed for answer in answers].count(False) == 1
        assert engine.tenant_status(TENANT).queue_depth == 0
    assert len(all_jobs(kit)) == len(kit.executor.runs) == 1


async def test_two_different_requests_race_for_a_key_and_one_is_refused(kit, job, submit):
    outcomes = []

    async def one(engine, code):
        try:
            outcomes.append((await submit(engine, job(code), key="k")).replayed)
        except Refusal as refusal:
            outcomes.append(refusal.code)

    async with kit.running() as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(one, engine, "print(1)")
        tasks.start_soon(one, engine, "print(2)")
    assert sorted(outcomes, key=str) == [False, "idempotency_key_reused"]
    assert len(all_jobs(kit)) == 1


async def test_a_key_belongs_to_its_tenant(kit, submit):
    async with kit.running() as engine:
        ours = await submit(engine, key="k")
        theirs = await submit(engine, tenant="other", key="k")
        assert not theirs.replayed
        assert theirs.job_id != ours.job_id


async def test_a_refused_submission_leaves_its_key_free_and_stores_nothing(kit, submit):
    async with kit.running() as engine:
        assert await refused(submit(engine, code="  ", key="k")) == "empty_code"
        assert all_jobs(kit) == ()
        assert not (await submit(engine, code="print(1)", key="k")).replayed


async def test_a_finished_job_is_replayed_as_it_was_accepted(kit, submit, finished):
    kit.executor.script = lambda run: _end(run)
    async with kit.running() as engine:
        first = await submit(engine, key="k")
        await finished(engine, first.job_id)
        assert (await submit(engine, key="k")).job_id == first.job_id


async def test_a_keyed_replay_answers_after_shutdown_began_and_during_recovery(kit, submit):
    async with kit.running() as engine:
        first = await submit(engine, key="k")
        engine.begin_shutdown()
        assert (await submit(engine, key="k")).job_id == first.job_id
        assert await refused(submit(engine, key="new")) == "shutting_down"
    fresh = kit.engine()
    assert (await submit(fresh, key="k")).job_id == first.job_id
    assert await refused(submit(fresh, key="new")) == "startup_recovery"


async def test_isolation_above_the_backends_is_refused_before_anything_else(kit, submit):
    async with kit.running() as engine:
        wanted = {"requirements": {"minimum_isolation": "linux-shared-kernel"}, "language": "x"}
        assert await refused(submit(engine, **wanted)) == "minimum_isolation_unsatisfied"
        assert await refused(submit(engine, language="fortran")) == "unsupported_language"
        assert (
            await refused(submit(engine, runtime="python:bookworm-20260826-stdlib"))
            == "runtime_pack_requires_isolation"
        )
        network = {"limits": {"allow_network": True}}
        assert await refused(submit(engine, **network)) == "network_opt_in_unsupported"
        assert all_jobs(kit) == ()


async def test_full_queues_refuse_the_tenant_first_and_at_once(kit, submit):
    kit.set(workers=1, queue_capacity=3, tenant_queue_capacity=2)
    async with kit.running() as engine:
        await submit(engine, tenant="busy")
        await kit.executor.next_run()  # it runs: its queue slot is free again
        for _ in range(2):
            await submit(engine)
        assert await refused(submit(engine)) == "tenant_queue_saturated"
        await submit(engine, tenant="other")
        before = anyio.current_time()
        assert await refused(submit(engine, tenant="third")) == "queue_saturated"
        assert await refused(submit(engine)) == "tenant_queue_saturated"
        assert anyio.current_time() - before < 1


async def test_a_caller_that_goes_away_during_the_commit_leaves_exactly_one_job(
    kit, submit, finished
):
    kit.executor.script = lambda run: _end(run)
    async with kit.running() as engine:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: submit(engine))
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        (row,) = all_jobs(kit)
        detail = await finished(engine, row.job_id)
        assert detail.status == "succeeded"
    assert len(kit.executor.runs) == 1


async def test_a_keyed_replay_answers_while_the_queues_are_full(kit, job, submit):
    kit.set(workers=1, queue_capacity=3, tenant_queue_capacity=2)
    async with kit.running() as engine:
        first = await submit(engine, key="k")
        await kit.executor.next_run()
        for _ in range(2):
            await submit(engine)
        await submit(engine, tenant="other")
        assert await refused(submit(engine, key="new")) == "tenant_queue_saturated"
        assert await refused(submit(engine, tenant="third", key="k")) == "queue_saturated"
        again = await submit(engine, key="k")
        assert (again.job_id, again.replayed) == (first.job_id, True)
        reused = submit(engine, job("print(2)"), key="k")
        assert await refused(reused) == "idempotency_key_reused"
        assert kit.store.read.find_key("third", "k") is None, "a refusal leaves the key free"


async def test_a_key_is_free_once_retention_has_taken_its_job(kit, job, submit, finished):
    kit.executor.script = lambda run: _end(run)
    async with kit.running() as engine:
        first = await submit(engine, key="k")
        await finished(engine, first.job_id)
        swept = kit.store.call(Sweep(now_ms=kit.clock() + 1, age_ms=0))
        assert swept.jobs_deleted == 1
        other = await submit(engine, job("print(2)"), key="k")
        assert not other.replayed
        assert other.job_id != first.job_id


class DoubtfulStore:
    """Commits, or does not, and in either case says that it cannot tell."""

    def __init__(self, store, *, commits, before=None):
        self._store = store
        self._commits = commits
        self._before = before  # another request, whose commit comes first
        self.read = store.read
        self.doubts = 1

    def submit(self, op):
        if not isinstance(op, Accept) or not self.doubts:
            return self._store.submit(op)
        self.doubts -= 1
        if self._before is not None:
            self._store.submit(self._before(op)).result()
        future = self._store.submit(op) if self._commits else None
        if future is not None:
            future.result()
        from concurrent.futures import Future

        failed = Future()
        failed.set_exception(StorageUnavailableError("no answer"))
        return failed


def unreadable_for(reads, times):
    """Make look-ups of a job fail that many times, as on a disk that is slow to come back."""
    summary, left = reads.summary, [times]

    def fails(tenant, job_id):
        if left[0]:
            left[0] -= 1
            raise StorageUnavailableError("no answer")
        return summary(tenant, job_id)

    reads.summary = fails


async def test_a_commit_in_doubt_is_read_back_for_as_long_as_reading_fails(kit, submit):
    engine = kit.engine(store=DoubtfulStore(kit.store, commits=True))
    unreadable_for(kit.store.read, 4)
    async with kit.running(engine):
        with anyio.fail_after(60):
            submitted = await submit(engine, key="k")
        assert not submitted.replayed
        assert (await submit(engine, key="k")).job_id == submitted.job_id
    assert len(all_jobs(kit)) == 1


@pytest.mark.parametrize("same", [True, False])
async def test_a_commit_in_doubt_whose_key_another_request_took_is_a_replay_or_a_conflict(
    kit, job, submit, same
):
    other = job("print(1)" if same else "print(2)")

    def taken(op):
        return msgspec.structs.replace(
            op, job_id="taken", spec=other.stored(), fingerprint=fingerprint(other)
        )

    engine = kit.engine(store=DoubtfulStore(kit.store, commits=False, before=taken))
    async with kit.running(engine):
        asked = submit(engine, job("print(1)"), key="k")
        if same:
            submitted = await asked
            assert (submitted.job_id, submitted.replayed) == ("taken", True)
        else:
            assert await refused(asked) == "idempotency_key_reused"
        assert engine.tenant_status(TENANT).queue_depth == 0
    assert [row.job_id for row in all_jobs(kit)] == ["taken"]


async def test_what_was_accepted_in_doubt_is_told_to_whoever_watches(kit, submit):
    engine = kit.engine(store=DoubtfulStore(kit.store, commits=True))
    seen = []
    publish = engine.live.publish
    engine.live.publish = lambda job_id, events: (seen.extend(events), publish(job_id, events))
    async with kit.running(engine):
        submitted = await submit(engine)
        await kit.executor.next_run()
    assert [event.kind for event in seen][:2] == ["accepted", "started"]
    assert seen[0] == kit.events(submitted.job_id)[0]


async def test_a_commit_in_doubt_that_took_place_counts_as_accepted(kit, submit, finished):
    kit.executor.script = lambda run: _end(run)
    engine = kit.engine(store=DoubtfulStore(kit.store, commits=True))
    async with kit.running(engine):
        submitted = await submit(engine)
        assert (await finished(engine, submitted.job_id)).status == "succeeded"
    assert len(all_jobs(kit)) == 1


async def test_a_commit_in_doubt_that_did_not_take_place_is_the_stores_error(kit, submit):
    engine = kit.engine(store=DoubtfulStore(kit.store, commits=False))
    async with kit.running(engine):
        with pytest.raises(StorageUnavailableError):
            await submit(engine, key="k")
        assert engine.tenant_status(TENANT).queue_depth == 0
        assert not (await submit(engine, key="k")).replayed


async def test_rows_of_another_layer_are_accepted_with_the_job_or_not_at_all(kit, job):
    spec = job()
    seen = []

    class Rows:
        def __init__(self, error=None):
            self.error = error

        def apply(self, db, context):
            seen.append((context.job_id, context.status))
            if self.error is not None:
                raise self.error

    def put(engine, rows):
        return engine.submit_with(
            tenant=TENANT,
            spec=spec,
            fingerprint=fingerprint(spec),
            idempotency_key=None,
            participants=(rows,),
        )

    async with kit.running() as engine:
        submitted = await put(engine, Rows())
        with pytest.raises(LookupError):
            await put(engine, Rows(LookupError("no budget")))
        assert seen[0] == (submitted.job_id, JobStatus.QUEUED)
        assert len(seen) == 2
    assert len(all_jobs(kit)) == 1


async def test_a_large_job_is_accepted_whole(kit, submit, finished):
    kit.executor.script = lambda run: _end(run)
    text = "é" * 500_000
    async with kit.running() as engine:
        submitted = await submit(engine, code=f"#{text}", stdin=text)
        detail = await finished(engine, submitted.job_id)
    assert detail.requested_spec["stdin"] == text
    assert kit.executor.runs[0].plan.stdin == text.encode()


async def _end(run):
    run.end()
