"""After a start: what an earlier process left running is closed, what it left queued comes back."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import msgspec

from rookhold_server.jobs.admission import AdmissionClosedError
from rookhold_server.jobs.backoff import recovery_retry
from rookhold_server.jobs.diagnosis import named
from rookhold_server.jobs.fairqueue import Pending
from rookhold_server.metrics.recorder import SILENT, Recorder
from rookhold_store.operations import RecoverRunning
from rookhold_types.jobs import JobSpec
from rookhold_types.limits import LIMIT_BOUNDS
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rookhold_server.jobs.permits import MemoryPermits
    from rookhold_server.jobs.ports import Admission, Companions, JobStore, LiveBus, Scheduling
    from rookhold_store.rows import Cursor, JobRow, QueuedRow
    from rookhold_types.clock import Clock

log = logging.getLogger(__name__)

R = TypeVar("R")

ATTEMPTS: Final = 8
RUNNING_PAGE: Final = 32
QUEUED_PAGE: Final = 256


class RecoveryStuckError(Exception):
    """Rows that should have been closed are still there."""


class Recovery:
    def __init__(
        self,
        *,
        store: JobStore,
        admission: Admission,
        scheduling: Scheduling,
        live: LiveBus,
        permits: MemoryPermits,
        companions: Companions,
        clock: Clock,
        recorder: Recorder = SILENT,
    ) -> None:
        self._store = store
        self._admission = admission
        self._scheduling = scheduling
        self._live = live
        self._permits = permits
        self._companions = companions
        self._clock = clock
        self._recorder = recorder

    async def close_interrupted(self) -> int:
        """End every row found running, in a transaction each; none is ever run again.

        A row that cannot be closed in eight attempts fails the start; it stays as it is, and the
        pass can be repeated.
        """
        now_ms = self._clock()
        closed = 0
        while ids := await _insist(
            lambda: self._store.read(lambda reads: reads.running_ids(RUNNING_PAGE))
        ):
            before = closed
            for job_id in ids:
                closed += await self._close(job_id, now_ms)
            if closed == before:
                raise RecoveryStuckError
        return closed

    async def readmit_queued(self) -> int:
        """Queue what is still queued, oldest first; ends early once admission is closed."""
        back = 0
        after: Cursor | None = None
        while page := await self._queued_after(after):
            for queued in page:
                try:
                    back += await self._readmit(queued.tenant, queued.job_id)
                except AdmissionClosedError:
                    return back
            after = page[-1].cursor
        return back

    async def _queued_after(self, after: Cursor | None) -> tuple[QueuedRow, ...]:
        return await _insist(
            lambda: self._store.read(lambda reads: reads.queued_page(after, QUEUED_PAGE))
        )

    async def _close(self, job_id: str, now_ms: int) -> bool:
        row = await _insist(lambda: self._store.read(lambda reads: reads.summary(None, job_id)))

        async def attempt() -> bool:
            participants = await self._companions.ending_unrun(job_id)
            done = await self._store.run(
                RecoverRunning(job_id=job_id, now_ms=now_ms, participants=participants), large=True
            )
            return done is not None

        closed = await _insist(attempt)
        if closed and row is not None:
            self._recorder.recovered(interrupted=1)
            self._recorder.completed(row.language, JobStatus.ERROR.value)
        return closed

    async def _readmit(self, tenant: str, job_id: str) -> bool:
        lease = await self._admission.readmit(tenant)
        try:
            row = await _insist(lambda: self._store.read(lambda reads: reads.get(tenant, job_id)))
        except BaseException:
            lease.release()
            raise
        if row is None or row.status != JobStatus.QUEUED:
            lease.release()
            return False
        self._live.open(job_id)
        self._scheduling.offer(
            Pending(
                job_id=job_id,
                tenant=tenant,
                admitted_mem_mb=row.admitted_mem_mb,
                permit_mb=self._permits.of(row.admitted_mem_mb, _max_file_mb(row)),
                lease=lease,
            )
        )
        self._recorder.recovered(restored=1)
        return True


def _max_file_mb(row: JobRow) -> int:
    """Of the stored spec; one that does not decode is ended by the worker and needs no more."""
    try:
        return msgspec.json.decode(row.spec_json, type=JobSpec).limits.max_file_mb
    except msgspec.DecodeError:
        return LIMIT_BOUNDS["max_file_mb"].default


async def _insist(attempt: Callable[[], Awaitable[R]]) -> R:
    waits = recovery_retry()
    for _ in range(ATTEMPTS - 1):
        try:
            return await attempt()
        except Exception as error:  # noqa: BLE001 - the last attempt raises what it raises
            log.warning("a step of start-up recovery failed (%s), trying again", named(error))
        await anyio.sleep(next(waits))
    return await attempt()
