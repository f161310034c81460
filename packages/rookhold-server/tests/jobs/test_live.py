"""Live channels: what a reader sees, and what it is told when it falls behind."""

import anyio
import pytest

from rookhold_server.jobs.live import BACKLOG_EVENTS, LiveHub
from rookhold_server.refusal import Refusal
from rookhold_types import WireEvent

pytestmark = pytest.mark.anyio
TENANT = "acme"


def events(first, last):
    return [WireEvent(seq=seq, ts_ms=0, kind="stdout", data={}) for seq in range(first, last + 1)]


async def test_a_reader_sees_each_event_after_it_is_stored_and_then_the_end(kit, submit):
    async with kit.running() as engine:
        submitted = await submit(engine)
        subscription = engine.live.get(submitted.job_id).subscribe()
        run = await kit.executor.next_run()
        await run.print("a\nb\n")
        run.end()
        seen = []
        with anyio.fail_after(5):
            while not subscription.ended or seen[-1].kind != "finished":
                await subscription.wait()
                for event in subscription.take():
                    assert event in kit.events(submitted.job_id)
                    seen.append(event)
        assert [event.kind for event in seen][-3:] == ["stdout", "stdout", "finished"]
        assert [event.seq for event in seen] == sorted({event.seq for event in seen})
        assert engine.live.get(submitted.job_id) is None


async def test_a_reader_that_falls_behind_is_told_and_holds_no_more_than_the_backlog():
    hub = LiveHub()
    slow = hub.open("job").subscribe()
    hub.publish("job", events(1, 10))
    assert [event.seq for event in slow.take()] == list(range(1, 11))
    hub.publish("job", events(11, 10 + BACKLOG_EVENTS))
    hub.publish("job", events(11 + BACKLOG_EVENTS, 12 + BACKLOG_EVENTS))
    assert slow.lagged
    assert slow.take() == []
    assert not slow.lagged
    hub.publish("job", events(5000, 5001))
    assert [event.seq for event in slow.take()] == [5000, 5001]


async def test_a_reader_that_left_is_not_kept():
    hub = LiveHub()
    channel = hub.open("job")
    channel.subscribe().close()
    hub.publish("job", events(1, 2))
    assert not channel.subscriptions


async def test_a_replayed_or_refused_submission_leaves_no_channel(kit, submit):
    kit.set(workers=1)
    async with kit.running() as engine:
        first = await submit(engine, key="k")
        assert (await submit(engine, key="k")).replayed
        with pytest.raises(Refusal):
            await submit(engine, code=" ")
        assert list(engine.live._channels) == [first.job_id]


async def test_an_ended_jobs_channel_lets_a_late_waiter_through():
    hub = LiveHub()
    channel = hub.open("job")
    hub.close("job")
    with anyio.fail_after(1):
        await channel.wait()
        await channel.subscribe().wait()
