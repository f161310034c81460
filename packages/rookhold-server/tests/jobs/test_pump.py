"""From executor events to stored ones: batches, backpressure, and honest loss."""

import hashlib

import anyio
import pytest

from rookhold_exec.executor import OutputRecord, Truncated, Violation
from rookhold_server.jobs.pump import EventPump
from rookhold_store import Append, StorageUnavailableError
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


async def test_batches_hold_at_most_256_events_in_order_and_are_shown_after_they_are_stored():
    log, shown = Log(), []
    pump = EventPump(append=log.append, publish=shown.append)
    await pump.run(replay(record(str(n)) for n in range(1000)), failing=never)
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
            tasks.start_soon(lambda: pump.run(receive, failing=never))
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
            tasks.start_soon(lambda: pump.run(source(), failing=never))
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
    await pump.run(replay([record("lost")]), failing=never)
    assert [kind for kind, _ in log.events] == ["truncated"]


async def test_a_store_that_never_answers_again_does_not_keep_the_job_for_ever(monkeypatch):
    monkeypatch.setattr("rookhold_server.jobs.pump.recovery_retry", lambda: iter([0.001] * 99))
    log = Log(failing=range(1, 100))
    pump = EventPump(append=log.append, publish=lambda events: None)
    await pump.run(replay([record("lost")]), failing=never)
    assert log.events == []
    assert not pump.complete


async def test_the_executors_own_cut_is_written_once_with_the_compiled_limits():
    log = Log()
    pump = EventPump(append=log.append, publish=lambda events: None)
    await pump.run(replay([record("x"), Truncated("stdout")]), failing=never)
    assert [kind for kind, _ in log.events] == ["stdout", "truncated"]
    assert pump.retained.truncated
    assert pump.complete


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
    """A store that loses the n-th batch of events, before or after it was committed."""

    def __init__(self, store, *, nth, committed):
        self._store, self._nth, self._committed = store, nth, committed
        self.read = store.read

    def submit(self, op):
        if not isinstance(op, Append):
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
