"""Brings queued jobs and free workers together."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

import anyio
from msgspec import Struct

from rookhold_server.jobs.estimate import WaitEstimate

if TYPE_CHECKING:
    from rookhold_server.jobs.fairqueue import FairQueue, Grant, Pending


class QueuePlace(Struct, frozen=True):
    position: int
    estimated_wait_ms: int | None


class _Seat:
    """A free worker, waiting."""

    __slots__ = ("filled", "grant")

    def __init__(self) -> None:
        self.filled = anyio.Event()
        self.grant: Grant | None = None


class Dispatcher:
    """A pass runs when work arrives, a worker becomes free or permits come back."""

    def __init__(self, queue: FairQueue, *, workers: int, concurrency: int) -> None:
        self._queue = queue
        self._concurrency = concurrency
        self._workers = workers
        self._seats: deque[_Seat] = deque()
        self._changed = anyio.Event()
        self._closed = False
        self._estimate = WaitEstimate()
        self._handed_over: dict[str, float] = {}

    async def run(self) -> None:
        """Make passes until `close`; returning earlier is a fault of ours."""
        while not self._closed:
            await self._changed.wait()
            self._changed = anyio.Event()
            self._pass()

    def offer(self, pending: Pending) -> bool:
        """Queue a durably accepted job; False once closed, its row is for the next process."""
        if self._closed:
            pending.lease.release()
            return False
        self._queue.add(pending)
        self._changed.set()
        return True

    async def next(self) -> Grant | None:
        """Wait as a free worker; None once closed."""
        if self._closed:
            return None
        seat = _Seat()
        self._seats.append(seat)
        self._changed.set()
        try:
            await seat.filled.wait()
        finally:
            if not seat.filled.is_set():
                self._seats.remove(seat)
        return seat.grant

    def finished(self, grant: Grant) -> None:
        """The job's finalisation has returned: its permits are free."""
        began = self._handed_over.pop(grant.pending.job_id, None)
        if began is not None and not grant.pending.cancelled:  # such a one ran for no time at all
            self._estimate.observe((time.monotonic() - began) * 1000)
        self._queue.give_back(grant)
        self._changed.set()

    def close(self) -> None:
        """The launch gate: nothing is handed over any more; what waits stays queued on disk."""
        self._closed = True
        for pending in self._queue.drain():
            pending.lease.release()
        while self._seats:
            self._seats.popleft().filled.set()
        self._changed.set()

    def mark_cancelled(self, tenant: str, job_id: str) -> None:
        """Its row has ended; it keeps its slot until its turn, but counts for nobody's place."""
        if (found := self._queue.find(tenant, job_id)) is not None:
            found[1].cancelled = True

    def place(self, tenant: str, job_id: str) -> QueuePlace | None:
        """Where a queued job stands; None for a job that is not here."""
        if job_id in self._handed_over:
            return QueuePlace(1, 0)
        found = self._queue.find(tenant, job_id)
        if found is None:
            return None
        slots = min(self._concurrency, self._workers * self._queue.share(tenant))
        return QueuePlace(found[0], self._estimate.wait_ms(found[0], slots=slots))

    def running(self, tenant: str) -> int:
        return self._queue.running(tenant)

    def owned(self, tenant: str) -> int:
        """How many of the tenant's jobs are here or in a worker's hands."""
        return self._queue.waiting(tenant) + self._queue.running(tenant)

    def _pass(self) -> None:
        while self._seats and (grant := self._queue.take()) is not None:
            self._handed_over[grant.pending.job_id] = time.monotonic()
            seat = self._seats.popleft()
            seat.grant = grant
            seat.filled.set()
