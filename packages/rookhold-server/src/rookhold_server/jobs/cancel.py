"""DELETE: end a queued job, or tell the worker that owns it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookhold_server.jobs.rowviews import job_view
from rookhold_server.jobs.tokens import CancelTokens, StopReason
from rookhold_server.metrics.recorder import SILENT, Recorder
from rookhold_server.refusal import Refusal
from rookhold_store import StorageFullError
from rookhold_store.operations import CancelQueued
from rookhold_types.states import JobStatus
from rookhold_types.views import CancelResponse

if TYPE_CHECKING:
    from rookhold_server.jobs.finalise import Finaliser
    from rookhold_server.jobs.ports import Companions, JobStore, Scheduling
    from rookhold_store.operations import Finalised
    from rookhold_store.rows import JobSummary
    from rookhold_types.clock import Clock


class Canceller:
    """Every step leaves the job either ended or with a token that its worker will see."""

    def __init__(
        self,
        *,
        store: JobStore,
        scheduling: Scheduling,
        tokens: CancelTokens,
        finaliser: Finaliser,
        companions: Companions,
        clock: Clock,
        recorder: Recorder = SILENT,
    ) -> None:
        self._store = store
        self._scheduling = scheduling
        self._tokens = tokens
        self._finaliser = finaliser
        self._companions = companions
        self._clock = clock
        self._recorder = recorder

    async def cancel(self, tenant: str, job_id: str) -> CancelResponse:
        row = await self._summary(tenant, job_id)
        if row.terminal:
            return _over(row)
        if (token := self._tokens.owned(job_id)) is not None:
            token.set(StopReason.CANCELLED)
            return _asked(row)
        ending = CancelQueued(
            tenant=tenant,
            job_id=job_id,
            now_ms=self._clock(),
            participants=await self._companions.ending_unrun(job_id),
        )
        try:
            done = await self._store.run(ending, large=True)
        except StorageFullError as error:  # the job stays queued: it could not be said durably
            raise Refusal(error.code, "Too little free disk is left to cancel the job.") from error
        if done is not None:
            self._ended(tenant, job_id, done)
            self._recorder.completed(row.language, JobStatus.CANCELLED.value)
            return _asked(await self._summary(tenant, job_id))
        return await self._reach_for_owner(tenant, job_id)

    def _ended(self, tenant: str, job_id: str, done: Finalised) -> None:
        self._scheduling.mark_cancelled(tenant, job_id)
        self._finaliser.announce(job_id, done)

    async def _reach_for_owner(self, tenant: str, job_id: str) -> CancelResponse:
        """The row moved under us: leave a token for whoever owns it, then look again."""
        token = self._tokens.install(job_id)
        try:
            row = await self._summary(tenant, job_id)
        except BaseException:
            self._tokens.drop_unowned(job_id)
            raise
        if row.terminal:
            self._tokens.drop_unowned(job_id)
            return _over(row)
        token.set(StopReason.CANCELLED)
        return _asked(row)

    async def _summary(self, tenant: str, job_id: str) -> JobSummary:
        row = await self._store.read(lambda reads: reads.summary(tenant, job_id))
        if row is None:
            raise Refusal("job_not_found")
        return row


def _asked(row: JobSummary) -> CancelResponse:
    return CancelResponse(job=job_view(row), cancellation_requested=True, already_terminal=False)


def _over(row: JobSummary) -> CancelResponse:
    return CancelResponse(job=job_view(row), cancellation_requested=False, already_terminal=True)
