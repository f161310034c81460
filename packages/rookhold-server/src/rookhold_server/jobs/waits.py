"""Waiting for a job to end or to be signed, never past shutdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from rookhold_server.jobs.rowviews import attestation_view
from rookhold_server.jobs.values import StoredAttestation
from rookhold_server.refusal import Refusal
from rookhold_types.views import AttestationState

if TYPE_CHECKING:
    from collections.abc import Callable

    from rookhold_server.jobs.live import LiveChannel
    from rookhold_server.jobs.ports import ConsistentReads, JobStore, LiveBus

POLL_SECONDS: Final = 0.25  # where no notice of this process tells of the job


class Waits:
    """Notices where there are any, polling where not.

    `signing` says whether a signer is at work; `signatures` carries the notice that a job's
    outbox row was settled, by job id.
    """

    def __init__(
        self,
        *,
        store: JobStore,
        live: LiveBus,
        signatures: LiveBus,
        signing: bool,
        stopping: Callable[[], bool],
    ) -> None:
        self._store = store
        self._live = live
        self._signatures = signatures
        self._signing = signing
        self._stopping = stopping

    async def terminal(self, tenant: str, job_id: str, seconds: float) -> bool:
        """True once the job is terminal; False if time is over, shutdown began or it is gone."""
        deadline = anyio.current_time() + seconds
        while True:
            channel = self._live.get(job_id)
            row = await self._store.read(lambda reads: reads.summary(tenant, job_id), brief=True)
            if row is None or row.terminal:
                return row is not None
            if not await self._pause(channel, deadline):
                return False
            if channel is not None and channel.ended:
                return True

    async def signed(self, tenant: str, job_id: str, seconds: float) -> None:
        """Return once an envelope exists, or certainly never will, or as `terminal` gives up."""
        if not self._signing:
            return
        deadline = anyio.current_time() + seconds
        if not await self.terminal(tenant, job_id, seconds):
            return
        while True:
            # Opened before the look, so that nothing is settled unnoticed; shared by all who wait
            # for this job, so that only the signer closes it, or whoever finds it settled.
            notice = self._signatures.open(job_id)
            if await self._state(tenant, job_id) is not AttestationState.PENDING:
                self._signatures.close(job_id)
                return
            if not await self._pause(notice, deadline):
                return

    async def attestation(self, tenant: str, job_id: str) -> StoredAttestation:
        """The persisted bytes; Refusal `job_not_found`, `attestation_pending`, `…_unavailable`."""
        row = await self._store.read(lambda reads: reads.attestation(tenant, job_id))
        if row is None:
            state = await self._state(tenant, job_id)
            if state is AttestationState.AVAILABLE:  # signed between the two looks
                return await self.attestation(tenant, job_id)
            pending = state is AttestationState.PENDING
            raise Refusal("attestation_pending" if pending else "attestation_unavailable")
        return StoredAttestation(
            envelope=row.envelope_json,
            envelope_sha256=row.envelope_sha256,
            result_artifact=row.result_artifact,
            result_sha256=row.result_sha256,
            result_media_type=row.result_media_type,
            key_id=row.key_id,
        )

    async def _state(self, tenant: str, job_id: str) -> AttestationState:
        def look(reads: ConsistentReads) -> AttestationState | None:
            with reads.snapshot() as view:
                row = view.summary(tenant, job_id)
                stored = view.attestation_status(tenant, job_id)
                outbox = view.outbox(job_id)
            if row is None:
                return None
            return attestation_view(row, stored, outbox, signing=self._signing).state

        state = await self._store.read(look, brief=True)
        if state is None:
            raise Refusal("job_not_found")
        return state

    async def _pause(self, channel: LiveChannel | None, deadline: float) -> bool:
        """Wait for a reason to look again; False if there will be none within the time."""
        left = deadline - anyio.current_time()
        if left <= 0 or self._stopping():
            return False
        if channel is None:
            await anyio.sleep(min(left, POLL_SECONDS))
        else:
            with anyio.move_on_after(left):
                await channel.wait()
        return not self._stopping()
