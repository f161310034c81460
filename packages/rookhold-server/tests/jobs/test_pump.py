"""From executor events to stored ones: batches, backpressure, and honest loss."""

import hashlib

import anyio
import pytest

from rookhold_exec.executor import OutputRecord, Truncated, Violation
from rookhold_server.jobs.pump import EventPump
from rookhold_store import (
    Accept,
    Append,
    Finalise,
    Start,
    StorageFullError,
    StorageUnavailableError,
    TenantQuotaError,
)
from rookhold_types import WireEvent

pytestmark = pytest.mark.anyio
TENANT = "acme"


class Log:
    """Stands for the store: takes batches, or fails the ones it is told to."""

    def __init__(self, failing=()):
        self.batches = []
        self.attempts = 0
        self.failing = set(failing)
        self.gate = None
        self.times = []

    async def append(self, drafts):
        self.attempts += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.attempts in self.failing:
            raise StorageUnavailableError("no")
        self.batches.append(list(drafts))
        self.times.append(anyio.current_time())
        return [
            WireEvent(seq=index, ts_ms=0, kind=kind, data=data)
            for index, (kind, data) in enumerate(drafts)
        ]

    @property
    def events(self):
        return [draft for batch in self.batches for draft in batch]

    def lines(self, stream="stdout"):
        return [data["line"] for kind, data in self.events if kind == stream]


def record(text, stream="stdout"):
    return OutputRecord(stream, text, True)


async def replay(events):
    for event in events:
        yield event


def never():
    raise AssertionError("nothing failed")


async def run_to_its_end(pump, source):
    """As the job does where nothing ends it together with its last batch."""
    await pump.run(source, failing=never)
    await pump.flush()


async def test_batches_hold_at_most_256_events_in_order_and_are_shown_after_they_are_stored():
    log, shown = Log(), []
    pump = EventPump(append=log.append, publish=shown.append)
    await run_to_its_end(pump, replay(record(str(n)) for n in range(1000)))
    assert log.lines() == [str(n) for n in range(1000)]
    assert max(map(len, log.batches)) <= 256
    assert len(log.batches) <= 5
    assert [len(events) for events in shown] == [len(batch) for batch in log.batches]
    printed = "".join(f"{n}\n" for n in range(1000)).encode()
    assert pump.retained.stdout.bytes == len(printed)
    assert pump.retained.stdout.sha256 == hashlib.sha256(printed).hexdigest()
    assert pump.complete


async def test_a_lone_event_is_stored_soon_and_the_rest_at_the_end_of_the_stream():
    log = Log()
    send, receive = anyio.create_memory_object_stream(10)
    pump = EventPump(append=log.append, publish=lambda events: None)
    with anyio.fail_after(5), send, receive:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_to_its_end, pump, receive)
            began = anyio.current_time()
            await send.send(record("first"))
            while not log.batches:
                await anyio.sleep(0.001)
            assert log.times[0] - began < 0.5
            await send.send(record("last"))
            send.close()
    assert log.lines() == ["first", "last"]


async def test_a_slow_commit_stops_the_source_and_loses_nothing():
    log, taken = Log(), 0
    log.gate = anyio.Event()

    async def source():
        nonlocal taken
        for n in range(2000):
            taken += 1
            yield record(str(n))

    pump = EventPump(append=log.append, publish=lambda events: None)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_to_its_end, pump, source())
            await anyio.wait_all_tasks_blocked()
            assert taken <= 3 * 256
            log.gate.set()
    assert log.lines() == [str(n) for n in range(2000)]
    assert pump.complete


async def test_a_failed_batch_cuts_its_stream_and_what_is_kept_is_a_prefix():
    log = Log(failing={2})
    pump = EventPump(append=log.append, publish=lambda events: None)
    await pump.run(replay(record(str(n)) for n in range(1000)), failing=never)
    kept = log.lines()
    assert 0 < len(kept) < 300
    assert kept == [str(n) for n in range(len(kept))]
    cut = [data for kind, data in log.events if kind == "truncated"]
    assert cut == [
        {
            "stream": "stdout",
            "max_lines": 10_000,
            "max_bytes": 1_048_576,
            "max_record_bytes": 16_384,
        }
    ]
    assert pump.retained.truncated
    assert not pump.complete
    assert pump.in_doubt


async def test_a_stream_that_lost_nothing_goes_on_after_the_other_was_cut():
    log = Log(failing={1})
    send, receive = anyio.create_memory_object_stream(10)
    pump = EventPump(append=log.append, publish=lambda events: None)
    with anyio.fail_after(5), send, receive:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: pump.run(receive, failing=never))
            await send.send(record("lost"))
            while log.attempts < 1:
                await anyio.sleep(0.001)
            await send.send(record("late"))
            await send.send(record("kept", "stderr"))
            await send.send(Violation("memory_cap_exceeded", {"mem_mb": 16}))
            send.close()
    assert log.lines() == []
    assert log.lines("stderr") == ["kept"]
    assert [kind for kind, _ in log.events] == ["truncated", "stderr", "violation"]


async def test_a_mark_that_cannot_be_written_at_first_is_tried_again():
    log = Log(failing={1, 2, 3})
    pump = EventPump(append=log.append, publish=lambda events: None)
    await run_to_its_end(pump, replay([record("lost")]))
    assert [kind for kind, _ in log.events] == ["truncated"]


async def test_a_store_that_never_answers_again_does_not_keep_the_job_for_ever(monkeypatch):
    monkeypatch.setattr("rookhold_server.jobs.pump.recovery_retry", lambda: iter([0.001] * 99))
    log = Log(failing=range(1, 100))
    pump = EventPump(append=log.append, publish=lambda events: None)
    await run_to_its_end(pump, replay([record("lost")]))
    assert log.events == []
    assert not pump.complete
    assert [kind for kind, _ in pump.marks_owed().values()] == ["truncated"]


async def test_the_executors_own_cut_is_written_once_with_the_compiled_limits():
    log = Log()
    pump = EventPump(append=log.append, publish=lambda events: None)
    await run_to_its_end(pump, replay([record("x"), Truncated("stdout")]))
    assert [kind for kind, _ in log.events] == ["stdout", "truncated"]
    assert pump.retained.truncated
    assert pump.complete


async def test_the_last_batch_is_held_back_for_the_ending_which_counts_it():
    log = Log()
    pump = EventPump(append=log.append, publish=lambda events: None)
    source = [record("out"), record("err", "stderr"), Truncated("stdout")]
    await pump.run(replay(source), failing=never)
    assert log.batches == []
    for _ in range(2):  # asking changes nothing
        retained, drafts = pump.closing()
        assert [kind for kind, _ in drafts] == ["stdout", "stderr", "truncated"]
        assert (retained.stdout.bytes, retained.stderr.bytes) == (4, 4)
        assert retained.stdout.sha256 == hashlib.sha256(b"out\n").hexdigest()
        assert retained.truncated
    assert pump.retained.stdout.bytes == 0


async def test_what_is_said_after_the_stream_is_stored_after_what_was_held_back():
    log = Log()
    pump = EventPump(append=log.append, publish=lambda events: None)
    await pump.run(replay([record("printed")]), failing=never)
    assert await pump.add([("artifact", {"path": "output/a"})])
    assert [kind for kind, _ in log.events] == ["stdout", "artifact"]
    assert pump.closing() == (pump.retained, [])
    assert pump.retained.stdout.bytes == len(b"printed\n")


async def test_nothing_is_held_back_after_a_loss():
    log = Log(failing={1})
    pump = EventPump(append=log.append, publish=lambda events: None)
    await pump.run(replay(record(str(n)) for n in range(300)), failing=never)
    assert pump.closing() == (pump.retained, [])
    assert [kind for kind, _ in log.events] == ["truncated"]


async def test_a_broken_pump_reads_the_source_to_its_end_and_says_so():
    failures, taken = [], 0

    async def source():
        nonlocal taken
        for n in range(3000):
            taken += 1
            yield record(str(n))

    def publish(events):
        raise RuntimeError("a bug of ours")

    pump = EventPump(append=Log().append, publish=publish)
    with anyio.fail_after(5):
        await pump.run(source(), failing=lambda: failures.append(1))
    assert pump.broken
    assert not pump.complete
    assert (failures, taken) == ([1], 3000)


class Unlucky:
    """A store that loses the n-th operation of a kind, before or after it was committed."""

    def __init__(self, store, *, nth, committed, kind=Append):
        self._store, self._nth, self._committed, self._kind = store, nth, committed, kind
        self.read = store.read
        self.kinds = []

    def submit(self, op):
        self.kinds.append(type(op))
        if not isinstance(op, self._kind):
            return self._store.submit(op)
        self._nth -= 1
        if self._nth != 0:
            return self._store.submit(op)
        if self._committed:
            self._store.call(op)
        from concurrent.futures import Future

        failed = Future()
        failed.set_exception(StorageUnavailableError("no answer"))
        return failed


@pytest.mark.parametrize("committed", [False, True])
async def test_the_receipt_hashes_only_what_is_stored_after_a_failed_commit(
    kit, submit, finished, committed
):
    async def script(run):
        await run.print("".join(f"line {n}\n" for n in range(900)))
        run.end()

    kit.executor.script = script
    engine = kit.engine(store=Unlucky(kit.store, nth=2, committed=committed))
    async with kit.running(engine):
        submitted = await submit(engine)
        detail = await finished(engine, submitted.job_id)
        result = await engine.result(TENANT, submitted.job_id)
    whole = "".join(f"line {n}\n" for n in range(900))
    stored = result.stdout.encode()
    assert whole.startswith(result.stdout)
    assert 0 < len(stored) < len(whole)
    assert result.truncated
    assert detail.status == "succeeded"
    assert detail.receipt["evidence_complete"] is False
    output = detail.receipt["output"]
    assert output["stdout_bytes"] == len(stored)
    assert output["stdout_sha256"] == hashlib.sha256(stored).hexdigest()
    assert output["stdout_bytes_seen"] == len(whole)
    assert output["truncated"] is True


class FullDisk(Unlucky):
    """Takes no event; takes an ending once it is told that there is room."""

    def __init__(self, store):
        super().__init__(store, nth=0, committed=False)
        self.full = True

    def submit(self, op):
        if not isinstance(op, Append) and not (isinstance(op, Finalise) and self.full):
            return self._store.submit(op)
        from concurrent.futures import Future

        self.full = self.full and not isinstance(op, Finalise)
        failed = Future()
        failed.set_exception(StorageFullError("no room"))
        return failed


async def test_a_cut_that_could_not_be_marked_in_time_is_marked_by_the_ending(
    kit, submit, finished, monkeypatch, caplog
):
    monkeypatch.setattr("rookhold_server.jobs.pump.recovery_retry", lambda: iter([0.001] * 99))

    async def script(run):
        await run.print("".join(f"line {n}\n" for n in range(900)))
        await run.print("error\n", "stderr")
        run.end()

    kit.executor.script = script
    engine = kit.engine(store=FullDisk(kit.store))
    async with kit.running(engine):
        submitted = await submit(engine)
        detail = await finished(engine, submitted.job_id)
        result = await engine.result(TENANT, submitted.job_id)
    kinds = ["accepted", "started", "truncated", "truncated", "finished"]
    assert kit.kinds(submitted.job_id) == kinds
    assert (detail.status, result.stdout, result.truncated) == ("succeeded", "", True)
    assert detail.receipt["evidence_complete"] is False
    assert detail.receipt["output"]["truncated"] is True
    lost = [r for r in caplog.records if "a batch of events failed" in r.message]
    assert len([r for r in lost if r.levelname == "WARNING"]) == 1


async def _hello(run):
    await run.print("hello\n")
    run.end()


async def test_the_last_output_and_the_end_of_a_job_are_one_operation(kit, submit, finished):
    kit.executor.script = _hello
    store = Unlucky(kit.store, nth=0, committed=False)
    engine = kit.engine(store=store)
    async with kit.running(engine):
        submitted = await submit(engine)
        detail = await finished(engine, submitted.job_id)
    assert kit.kinds(submitted.job_id) == ["accepted", "started", "stdout", "finished"]
    assert store.kinds[:3] == [Accept, Start, Finalise]
    assert detail.receipt["output"]["stdout_sha256"] == hashlib.sha256(b"hello\n").hexdigest()


async def test_all_that_a_job_did_is_seen_live_in_its_order(kit, submit, finished):
    kit.executor.script = _hello
    kit.executor.start_gate = anyio.Event()
    async with kit.running() as engine:
        submitted = await submit(engine)
        subscription = engine.live.get(submitted.job_id).subscribe()
        kit.executor.start_gate.set()
        await finished(engine, submitted.job_id)
        seen = [event.kind for event in subscription.take()]
    assert seen[-2:] == ["stdout", "finished"]


@pytest.mark.parametrize("committed", [False, True])
async def test_an_ending_that_fails_with_its_last_output_is_made_up_for(
    kit, submit, finished, committed
):
    kit.executor.script = _hello
    engine = kit.engine(store=Unlucky(kit.store, nth=1, committed=committed, kind=Finalise))
    async with kit.running(engine):
        submitted = await submit(engine)
        assert await engine.wait_terminal(TENANT, submitted.job_id, 30)
        detail = await finished(engine, submitted.job_id)
        result = await engine.result(TENANT, submitted.job_id)
    assert kit.kinds(submitted.job_id) == ["accepted", "started", "stdout", "finished"]
    assert (detail.status, result.stdout) == ("succeeded", "hello\n")
    assert detail.receipt["evidence_complete"] is True
    assert detail.receipt["output"]["stdout_sha256"] == hashlib.sha256(b"hello\n").hexdigest()
    assert detail.receipt["event_chain"]["events"] == 4


class Quota(Log):
    """A log that has room for what is said about the run, and for no output."""

    async def append(self, drafts):
        self.attempts += 1
        if any(kind in ("stdout", "stderr", "artifact") for kind, _ in drafts):
            raise TenantQuotaError("no room")
        self.attempts -= 1
        return await super().append(drafts)


async def test_output_over_a_quota_is_cut_and_what_is_said_about_the_run_is_kept():
    log = Quota()
    pump = EventPump(append=log.append, publish=lambda events: None)
    source = [record("lost"), record("lost", "stderr"), Violation("wall_clock_exceeded", {})]
    await run_to_its_end(pump, replay(source))
    assert [kind for kind, _ in log.events] == ["truncated", "truncated", "violation"]
    assert len(log.batches) == 1
    assert not pump.complete
    assert not pump.in_doubt
    assert pump.retained.truncated
    assert pump.retained.stdout.bytes == pump.retained.stderr.bytes == 0


async def test_an_artifact_over_a_quota_is_lost_and_leaves_no_doubt():
    pump = EventPump(append=Quota().append, publish=lambda events: None)
    assert await pump.add([("artifact", {})]) is False
    assert (pump.complete, pump.in_doubt) == (False, False)
    assert await pump.add([("violation", {})]) is True
