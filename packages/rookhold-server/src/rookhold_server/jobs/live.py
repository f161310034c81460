"""Live channels: committed events fanned out, and the notice that a job has ended."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rookhold_types.events import WireEvent

BACKLOG_EVENTS = 4096  # per reader; one that falls further behind re-reads from the store


class Subscription:
    """One reader's bounded view of a channel.

    A reader that falls behind loses nothing that is not in the store: `lagged` then says that
    the events after the last one it saw are to be re-read from there.
    """

    def __init__(self, channel: LiveChannel) -> None:
        self._channel = channel
        self._events: deque[WireEvent] = deque()
        self._news = anyio.Event()
        self.lagged = False

    @property
    def ended(self) -> bool:
        """No event will follow the ones already here."""
        return self._channel.ended

    def take(self) -> list[WireEvent]:
        """Everything that arrived since the last call; clears `lagged`."""
        events = list(self._events)
        self._events.clear()
        self.lagged = False
        return events

    async def wait(self) -> None:
        """Return when there are events, a lag or the end to see."""
        while not (self._events or self.lagged or self.ended):
            await self._news.wait()
            self._news = anyio.Event()

    def close(self) -> None:
        self._channel.subscriptions.discard(self)

    def _push(self, events: Sequence[WireEvent]) -> None:
        if len(self._events) + len(events) > BACKLOG_EVENTS:
            self._events.clear()
            self.lagged = True
        elif not self.lagged:
            self._events.extend(events)
        self._news.set()


class LiveChannel:
    """One unfinished job. Holds readers, never history: that is the store's."""

    __slots__ = ("_changed", "ended", "subscriptions")

    def __init__(self) -> None:
        self.ended = False
        self.subscriptions: set[Subscription] = set()
        self._changed = anyio.Event()

    def subscribe(self) -> Subscription:
        subscription = Subscription(self)
        self.subscriptions.add(subscription)
        return subscription

    def publish(self, events: Sequence[WireEvent]) -> None:
        for subscription in self.subscriptions:
            subscription._push(events)

    def end(self) -> None:
        self.ended = True
        self._changed.set()
        self.publish(())

    def disturb(self) -> None:
        """Wake whoever waits for the end, so that they look at shutdown."""
        self._changed.set()

    async def wait(self) -> None:
        """Return when the job has ended or the waiters were disturbed."""
        await self._changed.wait()


class LiveHub:
    """The channels of every job this process knows to be unfinished."""

    def __init__(self) -> None:
        self._channels: dict[str, LiveChannel] = {}

    def open(self, job_id: str) -> LiveChannel:
        """Register before the commit, so that no event can be published to nobody."""
        return self._channels.setdefault(job_id, LiveChannel())

    def get(self, job_id: str) -> LiveChannel | None:
        return self._channels.get(job_id)

    def publish(self, job_id: str, events: Sequence[WireEvent]) -> None:
        """Fan out events; the caller vouches that they are committed."""
        if (channel := self._channels.get(job_id)) is not None:
            channel.publish(events)

    def close(self, job_id: str) -> None:
        """The job has ended, or was never accepted."""
        if (channel := self._channels.pop(job_id, None)) is not None:
            channel.end()

    def disturb_all(self) -> None:
        for channel in self._channels.values():
            channel.disturb()
