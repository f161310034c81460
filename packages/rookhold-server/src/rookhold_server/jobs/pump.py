"""From the executor's stream to the store: bounded, batched, durable before visible."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import anyio

from rookhold_exec.executor import ExecEvent, OutputRecord, Truncated, Violation
from rookhold_server.evidence.retained import Retained
from rookhold_server.jobs.backoff import recovery_retry
from rookhold_server.jobs.diagnosis import named
from rookhold_store import QuotaError
from rookhold_types.events import EventKind, WireEvent
from rookhold_types.limits import (
    OUTPUT_BYTES_MAX,
    OUTPUT_LINES_MAX,
    OUTPUT_RECORD_BYTES_MAX,
)

log = logging.getLogger(__name__)

BATCH_RECORDS: Final = 256
BATCH_SECONDS: Final = 0.005  # after the first record of a batch
SETTLE_ATTEMPTS: Final = 8

Draft = tuple[str, dict[str, Any]]  # kind and data of an event that is not stored yet
Append = Callable[[Sequence[Draft]], Awaitable[Sequence[WireEvent]]]


class EventPump:
    """Stores one job's events in order; while a commit is slow it stops taking from the source.

    A batch that fails to commit is not retried: each stream it held is cut there, so that what is
    stored stays a prefix, and `complete` turns false. Where a quota has no room for output, what is
    said about the run, the cut of a stream included, is stored without it.

    A last batch that went well so far is held back for the transaction that ends the job; whatever
    else is to be stored goes after it.
    """

    def __init__(self, *, append: Append, publish: Callable[[Sequence[WireEvent]], None]) -> None:
        self._append = append
        self._publish = publish
        self._waiting: deque[ExecEvent] = deque()
        self._first_at = 0.0  # when the oldest waiting event came, or was left over
        self._source_ended = False
        self._discarding = False
        self._arrived = anyio.Event()
        self._taken = anyio.Event()
        self._tail: list[ExecEvent] = []  # held back for the ending
        self._cut: dict[str, bool] = {}  # stream -> is its `truncated` event still to be written?
        self.retained = Retained()
        self.complete = True
        self.in_doubt = False  # a commit failed: only the store knows what it holds
        self.source_failed = False
        self.broken = False

    async def run(self, source: AsyncIterator[ExecEvent], *, failing: Callable[[], None]) -> None:
        """Return when the source has ended and all that is kept of it is committed, or held back.

        `failing` is called once if the source or the pump itself fails; the source is then read
        to its end, if it has one, so that nothing behind it blocks.
        """
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, source, failing)
            try:
                while await self._batch_ready():
                    if self._may_hold_back():
                        self._tail = self._take_batch()
                    else:
                        await self._commit(self._take_batch())
                await self._settle()
            except Exception:
                log.exception("the event pump failed")
                self.broken, self.complete, self._discarding = True, False, True
                self._waiting.clear()
                self._taken.set()
                failing()

    def closing(self) -> tuple[Retained, list[Draft]]:
        """What is retained once the events that were held back are stored too, and those events."""
        retained = self.retained.copy() if self._tail else self.retained
        for event in self._tail:
            _count(event, retained)
        return retained, [_draft(event) for event in self._tail]

    @property
    def holds_back(self) -> bool:
        """Whether there are events that only the ending, or a flush, will store."""
        return bool(self._tail)

    def marks_owed(self) -> dict[str, Draft]:
        """For each stream that was cut and whose mark could not be stored: that mark."""
        return {stream: _truncated(stream) for stream in self._owed()}

    async def flush(self) -> None:
        """Store by themselves the events that were held back."""
        tail, self._tail = self._tail, []
        if tail:
            await self._commit(tail)
            await self._settle()

    async def add(self, drafts: Sequence[Draft]) -> bool:
        """Store events of our own after the stream; False and an incomplete record if it fails."""
        if not drafts:
            return True
        await self.flush()
        return await self._store(drafts) is None

    async def _store(self, drafts: Sequence[Draft]) -> Exception | None:
        try:
            events = await self._append(drafts)
        except Exception as error:  # noqa: BLE001 - whatever failed, the batch is lost
            # Once: with a full disk, every batch of a long job.
            level = logging.WARNING if self.complete else logging.DEBUG
            log.log(level, "a batch of events failed to commit (%s)", named(error))
            self.complete = False
            if not isinstance(error, QuotaError):  # which says that nothing of it is stored
                self.in_doubt = True
            return error
        self._publish(events)
        return None

    async def _read(self, source: AsyncIterator[ExecEvent], failing: Callable[[], None]) -> None:
        try:
            async for event in source:
                if self._discarding:
                    continue
                while len(self._waiting) >= BATCH_RECORDS:
                    self._taken = anyio.Event()
                    await self._taken.wait()
                if not self._waiting:
                    self._first_at = anyio.current_time()
                self._waiting.append(event)
                if len(self._waiting) in (1, BATCH_RECORDS):
                    self._arrived.set()
        except Exception:
            log.exception("the executor's event stream failed")
            self.source_failed, self.complete = True, False
            failing()
        finally:
            self._source_ended = True
            self._arrived.set()

    async def _batch_ready(self) -> bool:
        """Wait for a full batch, the batch time after a first event, or the end of the source."""
        while not self._waiting:
            if self._source_ended:
                return False
            await self._arrived.wait()
            self._arrived = anyio.Event()
        with anyio.CancelScope(deadline=self._first_at + BATCH_SECONDS):
            while len(self._waiting) < BATCH_RECORDS and not self._source_ended:
                await self._arrived.wait()
                self._arrived = anyio.Event()
        return True

    def _may_hold_back(self) -> bool:
        """Whether what waits is all that will come, fits in one batch, and nothing went wrong."""
        last = self._source_ended and len(self._waiting) <= BATCH_RECORDS - 2
        return last and self.complete and not self._cut

    def _take_batch(self) -> list[ExecEvent]:
        batch = [
            self._waiting.popleft() for _ in range(min(BATCH_RECORDS - 2, len(self._waiting)))
        ]  # with room left for a `truncated` event per stream
        self._taken.set()
        return batch

    async def _commit(self, batch: Sequence[ExecEvent]) -> None:
        kept = [event for event in batch if self._stream_of(event) not in self._cut]
        owed = self._owed()
        drafts = [_truncated(stream) for stream in owed] + [_draft(event) for event in kept]
        if not drafts:
            return
        if (error := await self._store(drafts)) is not None:
            self._cut_streams_of(kept)
            about_the_run = [event for event in kept if self._stream_of(event) is None]
            if isinstance(error, QuotaError) and len(about_the_run) < len(kept):
                await self._commit(about_the_run)  # has room where output has none
            return
        for stream in owed:
            self._cut[stream] = False
            self.retained.truncated = True
        for event in kept:
            _count(event, self.retained)

    async def _settle(self) -> None:
        """Write the `truncated` events still owed; in the end it leaves them to the ending."""
        waits = recovery_retry()
        for _ in range(SETTLE_ATTEMPTS):
            owed = self._owed()
            if not owed:
                return
            await self._commit(())
            if self._owed():
                await anyio.sleep(next(waits))

    def _owed(self) -> list[str]:
        return [stream for stream, unwritten in self._cut.items() if unwritten]

    def _cut_streams_of(self, lost: Sequence[ExecEvent]) -> None:
        for event in lost:
            if (stream := self._stream_of(event)) is not None:
                self._cut.setdefault(stream, True)

    @staticmethod
    def _stream_of(event: ExecEvent) -> str | None:
        return None if isinstance(event, Violation) else event.stream


def _count(event: ExecEvent, retained: Retained) -> None:
    if isinstance(event, OutputRecord):
        retained.add_record(event)
    elif isinstance(event, Truncated):
        retained.truncated = True


def _draft(event: ExecEvent) -> Draft:
    match event:
        case OutputRecord():
            return event.stream, event.data()
        case Truncated():
            return _truncated(event.stream)
        case Violation():
            return EventKind.VIOLATION, {"rule": event.rule, "detail": event.detail}


def _truncated(stream: str) -> Draft:
    return EventKind.TRUNCATED, {
        "stream": stream,
        "max_lines": OUTPUT_LINES_MAX,
        "max_bytes": OUTPUT_BYTES_MAX,
        "max_record_bytes": OUTPUT_RECORD_BYTES_MAX,
    }
