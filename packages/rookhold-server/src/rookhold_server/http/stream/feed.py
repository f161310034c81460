"""A job's events in their order: what is stored, then what is committed while one watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import anyio

from rookhold_server.refusal import Refusal
from rookhold_store.rows import EventText
from rookhold_types.events import EventKind
from rookhold_types.wire import encode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from rookhold_server.jobs.live import Subscription
    from rookhold_server.jobs.ports import LiveBus
    from rookhold_store.rows import EventTexts

# What one reader holds of a history: about this much, or one event, which may be 2.7 MB of a file.
PAGE_EVENTS: Final = 256
PAGE_BYTES: Final = 64 * 1024
_POLL_SECONDS: Final = 0.25  # for a job that this process has not taken up yet


class History(Protocol):
    """Stored events of a tenant's job; Refusal `job_not_found`."""

    async def event_texts(
        self, tenant: str, job_id: str, after: int, *, limit: int, max_bytes: int
    ) -> EventTexts: ...


class Feed:
    """Each event with a `seq` above `after` once, without a gap, each only after its commit."""

    def __init__(
        self, history: History, live: LiveBus, tenant: str, job_id: str, after: int
    ) -> None:
        self._history = history
        self._live = live
        self._tenant = tenant
        self._job_id = job_id
        self._last = after

    async def batches(self) -> AsyncIterator[Sequence[EventText]]:
        """Ends after `finished`, and where the job was removed meanwhile; batches are not empty."""
        while True:
            channel = self._live.get(self._job_id)
            if channel is None:
                async for page in self._stored():
                    yield page
                if self._complete:
                    return
                await anyio.sleep(_POLL_SECONDS)
                continue
            subscription = channel.subscribe()  # before the look into the store: no gap
            try:
                async for batch in self._watched(subscription):
                    yield batch
            finally:
                subscription.close()
            if self._complete:
                return

    _complete = False  # nothing will follow

    async def _watched(self, subscription: Subscription) -> AsyncIterator[Sequence[EventText]]:
        """History, then live events; again from the store wherever some are missing."""
        while not self._complete:
            async for page in self._stored():
                yield page
            missing = False
            while not (missing or self._complete):
                await subscription.wait()
                missing = subscription.lagged
                events = [
                    EventText(event.seq, event.kind, (encode(event),))
                    for event in subscription.take()
                    if event.seq > self._last
                ]
                if not events and subscription.ended:
                    # What was missed stands in the store, with the end of all of it; where it does
                    # not, the job was taken over or away, and whoever called looks again.
                    async for page in self._stored():
                        yield page
                    return
                if not events or missing:
                    continue
                if events[0].seq != self._last + 1:
                    missing = True
                    continue
                self._note(events)
                yield events

    async def _stored(self) -> AsyncIterator[Sequence[EventText]]:
        while not self._complete:
            try:
                page = await self._history.event_texts(
                    self._tenant, self._job_id, self._last, limit=PAGE_EVENTS, max_bytes=PAGE_BYTES
                )
            except Refusal:  # removed while somebody watched
                self._complete = True
                return
            events = page.events
            if not events:
                self._complete = page.complete
                return
            self._note(events)
            self._complete = page.complete
            del page  # the reader may take long over these events, and frees them one by one
            yield events

    def _note(self, events: Sequence[EventText]) -> None:
        self._last = events[-1].seq
        self._complete = events[-1].kind == EventKind.FINISHED
