"""What can be read about jobs: one short, consistent look into the store for each answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from rookhold_server.jobs.dispatcher import QueuePlace
from rookhold_server.jobs.history import history
from rookhold_server.jobs.rowviews import attestation_view, detail_view, job_view, result_view
from rookhold_server.refusal import Refusal
from rookhold_store.rows import Cursor
from rookhold_types.states import JobStatus
from rookhold_types.views import JobDetail, JobPage, JobView, QueueView, ReplayPage, ResultView

if TYPE_CHECKING:
    from collections.abc import Callable

    from rookhold_server.jobs.ports import ConsistentReads, JobStore
    from rookhold_store.rows import EventTexts


R = TypeVar("R")

_SMALL_BYTES: Final = 64 * 1024  # of a job's rows; reading them takes less than a thread's help


class Queries:
    """`signing` says whether a signer is at work, `place` where a queued job stands."""

    def __init__(
        self,
        store: JobStore,
        *,
        signing: bool,
        place: Callable[[str, str], QueuePlace | None],
    ) -> None:
        self._store = store
        self._signing = signing
        self._place = place

    async def summary(self, tenant: str, job_id: str) -> JobView | None:
        row = await self._store.read(lambda reads: reads.summary(tenant, job_id), brief=True)
        return None if row is None else job_view(row)

    async def detail(self, tenant: str, job_id: str) -> JobDetail:
        def look(reads: ConsistentReads) -> JobDetail | None:
            with reads.snapshot() as view:
                row = view.get(tenant, job_id)
                if row is None:
                    return None
                stored = view.attestation_status(tenant, job_id)
                outbox = view.outbox(job_id)
            return detail_view(row, attestation_view(row, stored, outbox, signing=self._signing))

        detail = _found(await self._store.read(look))
        if detail.status != JobStatus.QUEUED:
            return detail
        return msgspec.structs.replace(detail, queue=await self._queue(detail))

    async def list_jobs(
        self,
        tenant: str,
        *,
        limit: int,
        cursor: tuple[int, str] | None,
        status: str | None,
        language: str | None,
    ) -> JobPage:
        rows = await self._store.read(
            lambda reads: reads.list_jobs(
                tenant,
                limit=limit + 1,
                cursor=None if cursor is None else Cursor(*cursor),
                status=status,
                language=language,
            )
        )
        items = tuple(job_view(row) for row in rows[:limit])
        more = len(rows) > limit
        return JobPage(
            items=items,
            next_cursor=f"{items[-1].created_at_ms}:{items[-1].job_id}" if more else None,
        )

    async def replay(self, tenant: str, job_id: str, after: int, limit: int) -> ReplayPage:
        page = _found(
            await self._store.read(lambda reads: reads.replay(tenant, job_id, after, limit))
        )
        return ReplayPage(
            events=page.events,
            next_cursor=page.events[-1].seq if page.events else None,
            complete=page.complete,
        )

    async def event_texts(
        self, tenant: str, job_id: str, after: int, *, limit: int, max_bytes: int
    ) -> EventTexts:
        return _found(
            await self._store.read(
                lambda reads: reads.event_texts(
                    tenant, job_id, after, limit=limit, max_bytes=max_bytes
                )
            )
        )

    async def result(self, tenant: str, job_id: str) -> ResultView:
        def look(reads: ConsistentReads) -> ResultView | None:
            with reads.snapshot() as view:
                row = view.summary(tenant, job_id)
                events = [] if row is None else history(view, job_id)
            return None if row is None else result_view(row, events)

        small = await self._store.read(
            lambda reads: reads.retained_bytes(job_id) <= _SMALL_BYTES, brief=True
        )
        return _found(await self._store.read(look, brief=small))

    async def _queue(self, job: JobDetail) -> QueueView | None:
        place = self._place(job.tenant, job.job_id)
        if place is None:  # not back in the queue yet after a restart: count what is before it
            before = await self._store.read(
                lambda reads: reads.list_jobs(
                    job.tenant,
                    limit=501,
                    cursor=Cursor(job.created_at_ms, job.job_id),
                    status=JobStatus.QUEUED,
                )
            )
            place = QueuePlace(len(before) + 1, None)
        return QueueView(position=place.position, estimated_wait_ms=place.estimated_wait_ms)


def _found(answer: R | None) -> R:
    if answer is None:
        raise Refusal("job_not_found")
    return answer
