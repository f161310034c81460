"""The durable accept: from a lease to a queued row that survives everything."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from rookhold_server.jobs.away import away, spec_is_large
from rookhold_server.jobs.backoff import store_retry
from rookhold_server.jobs.diagnosis import named
from rookhold_server.jobs.fairqueue import Pending
from rookhold_server.jobs.room import DiskWatch, no_room
from rookhold_server.jobs.values import Submitted
from rookhold_server.refusal import Refusal
from rookhold_server.tracing.spans import current
from rookhold_store import IdempotencyConflictError
from rookhold_store.operations import Accept, Replayed
from rookhold_types.ids import new_job_id
from rookhold_types.limits import memory_charge_mb
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rookhold_server.jobs.admission import Lease
    from rookhold_server.jobs.permits import MemoryPermits
    from rookhold_server.jobs.ports import Admission, JobStore, LiveBus, Scheduling
    from rookhold_server.metrics.recorder import Recorder
    from rookhold_store.operations import Participant
    from rookhold_types.clock import Clock
    from rookhold_types.jobs import JobSpec

log = logging.getLogger(__name__)

# What the store decided, as opposed to what it could not tell: nothing was stored.
_DECIDED = frozenset(
    {
        *("idempotency_key_reused", "tenant_storage_quota", "storage_capacity", "storage_reserve"),
        *("invalid_operation", "record_refused", "store_closed"),
    }
)


class Acceptor:
    """The one way in.

    `participants` are rows of a governed job, committed with it or not at all; no HTTP route can
    bring any.
    """

    def __init__(
        self,
        *,
        store: JobStore,
        admission: Admission,
        scheduling: Scheduling,
        live: LiveBus,
        permits: MemoryPermits,
        clock: Clock,
        recorder: Recorder,
        stopped: Callable[[], bool],
    ) -> None:
        self._store = store
        self._admission = admission
        self._scheduling = scheduling
        self._live = live
        self._permits = permits
        self._clock = clock
        self._stopped = stopped
        self._disk = DiskWatch(recorder)

    async def replay_of(self, tenant: str, key: str, fingerprint: str) -> Submitted | None:
        """What an earlier request with this key made; Refusal if it was another request."""
        row = await self._store.read(lambda reads: reads.find_key(tenant, key), brief=True)
        if row is None:
            return None
        if row.request_sha256 != fingerprint:
            raise Refusal("idempotency_key_reused")
        return Submitted(job_id=row.job_id, replayed=True)

    async def accept(
        self,
        *,
        tenant: str,
        spec: JobSpec,
        fingerprint: str,
        idempotency_key: str | None,
        participants: Sequence[Participant] = (),
    ) -> Submitted:
        """Store the job and queue it. A caller that goes away changes nothing once this began."""
        lease = self._admission.reserve(tenant)
        large = spec_is_large(spec)
        try:
            with anyio.CancelScope(shield=True):
                submitted = await self._commit(
                    lease,
                    Accept(
                        job_id=new_job_id(),
                        tenant=tenant,
                        language=spec.language,
                        spec=await away(spec.stored, large=large),
                        admitted_mem_mb=memory_charge_mb(
                            spec.limits.mem_mb, self._permits.job_ceiling_mb
                        ),
                        now_ms=self._clock(),
                        idempotency_key=idempotency_key,
                        fingerprint=fingerprint,
                        participants=tuple(participants),
                    ),
                    permit_mb=self._permits.of(spec.limits.mem_mb, spec.limits.max_file_mb),
                    large=large,
                )
        except BaseException:
            lease.release()
            raise
        return submitted

    async def _commit(
        self, lease: Lease, accept: Accept, *, permit_mb: int, large: bool
    ) -> Submitted:
        self._live.open(accept.job_id)
        try:
            submitted = await self._store_it(accept, large=large)
        except BaseException:
            self._live.close(accept.job_id)
            raise
        if submitted.replayed:
            self._live.close(accept.job_id)
            lease.release()
            return submitted
        self._scheduling.offer(
            Pending(
                job_id=accept.job_id,
                tenant=accept.tenant,
                admitted_mem_mb=accept.admitted_mem_mb,
                permit_mb=permit_mb,
                lease=lease,
                large=large,
                origin=current.get(),
            )
        )
        return submitted

    async def _store_it(self, accept: Accept, *, large: bool) -> Submitted:
        try:
            answer = await self._store.run(accept, large=large)
        except Exception as error:
            self._disk.refused(error)
            settled = await self._settle(accept, error)
            if settled is None:
                raise _as_refusal(error) from error
            return settled
        if isinstance(answer, Replayed):
            return Submitted(job_id=answer.job_id, replayed=True)
        self._disk.accepted()
        self._live.publish(accept.job_id, (answer.event,))
        return Submitted(job_id=accept.job_id, replayed=False)

    async def _settle(self, accept: Accept, error: Exception) -> Submitted | None:
        """Find out whether a commit with an unknown end took place; None where it did not."""
        if getattr(error, "code", None) in _DECIDED:
            return None
        log.warning("job %s: accepted or not (%s)? Reading back", accept.job_id, named(error))
        for wait in store_retry():
            try:
                row, events = await self._store.read(
                    lambda reads: (
                        reads.summary(accept.tenant, accept.job_id),
                        reads.events_after(accept.job_id, 0, 1),
                    )
                )
                if (
                    row is not None
                    and row.status == JobStatus.QUEUED
                    and row.language == accept.language
                ):
                    self._live.publish(accept.job_id, events)
                    return Submitted(job_id=accept.job_id, replayed=False)
                if accept.idempotency_key is None:
                    return None
                return await self.replay_of(
                    accept.tenant, accept.idempotency_key, accept.fingerprint
                )
            except Refusal:
                raise
            except Exception as failure:  # noqa: BLE001 - only an answer settles it
                log.warning("job %s: reading it back failed (%s)", accept.job_id, named(failure))
            if self._stopped():
                return None
            await anyio.sleep(wait)
        raise AssertionError("the waits never end")


def _as_refusal(error: Exception) -> Exception:
    if isinstance(error, IdempotencyConflictError):
        return Refusal(error.code)
    return no_room(error) or error
