"""The background signer: pages of due outbox rows, each signed, deferred or waived."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio
from msgspec import Struct

from rookhold_attestation import AttestationError, profile, waiver_code
from rookhold_server.jobs.diagnosis import named
from rookhold_server.metrics.recorder import SILENT, Recorder
from rookhold_store.operations import (
    DeferAttestation,
    FailAttestation,
    PersistAttestation,
    PersistOutcome,
    WaiveAttestation,
)
from rookhold_types.errors import EventDataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rookhold_attestation import PrivateKey
    from rookhold_server.jobs.ports import ConsistentReads, JobStore
    from rookhold_store.rows import PendingRow
    from rookhold_types.clock import Clock

log = logging.getLogger(__name__)

PAGE: Final = 32
AT_ONCE: Final = 4  # persists that arrive together share a commit; more would only hold memory
GATHER_SECONDS: Final = 0.01  # after a wake: jobs that end together are persisted together
IDLE_SECONDS: Final = 0.25
FAILED_SECONDS: Final = 1.0
DEFER_MS: Final = 1000
DEFER_MAX_MS: Final = 60_000


class StaleReceiptError(Exception):
    """The receipt that was signed is not the stored one; worth another attempt."""


class PassReport(Struct, kw_only=True):
    """One page: `failed` items were deferred, `abandoned` ones have a recorded waiver."""

    observed: int = 0
    completed: int = 0
    failed: int = 0
    abandoned: int = 0


class Signer:
    """Without a key it waives what is due: no code, nothing stored, the reserve released."""

    def __init__(
        self,
        *,
        store: JobStore,
        key: PrivateKey | None,
        clock: Clock,
        settled: Callable[[str], None],
        recorder: Recorder = SILENT,
    ) -> None:
        self._store = store
        self._key = key
        self._clock = clock
        self._settled = settled
        self._recorder = recorder
        self._news = anyio.Event()
        self._stopped = False

    def wake(self) -> None:
        self._news.set()

    def stop(self) -> None:
        """After the items at hand; what is pending stays pending."""
        self._stopped = True
        self._news.set()

    async def run(self) -> None:
        while not self._stopped:
            pause = FAILED_SECONDS
            try:
                report = await self.sign_due()
                if report.observed == PAGE and report.failed < PAGE:
                    continue  # more may be due; a page of failures alone is no reason to hurry
                if not report.failed:
                    pause = IDLE_SECONDS
            except Exception:
                log.exception("looking for unsigned jobs failed")
            with anyio.move_on_after(pause):
                await self._news.wait()
                await anyio.sleep(GATHER_SECONDS)
            if not self._stopped:
                self._news = anyio.Event()

    async def sign_due(self) -> PassReport:
        """One pass over at most a page of due rows."""
        now_ms = self._clock()
        due = await self._store.read(
            lambda reads: reads.pending_attestations(now_ms, PAGE), brief=True
        )
        report = PassReport(observed=len(due))
        places = anyio.CapacityLimiter(AT_ONCE)
        async with anyio.create_task_group() as tasks:
            for row in due:
                await places.acquire_on_behalf_of(row.job_id)
                tasks.start_soon(self._one, row, report, places)
        return report

    async def _one(
        self, row: PendingRow, report: PassReport, places: anyio.CapacityLimiter
    ) -> None:
        try:
            if not self._stopped:
                await self._settle(row, report)
        finally:
            places.release_on_behalf_of(row.job_id)

    async def _settle(self, row: PendingRow, report: PassReport) -> None:
        try:
            await self._sign(row)
        except Exception as error:  # noqa: BLE001 - the kind decides below
            code = _permanent(error)
            if code is None:
                log.warning("job %s could not be signed yet (%s)", row.job_id, named(error))
                report.failed += 1
                self._recorder.attestation_retried()
                await self._defer(row)
                return
            if not await self._abandon(row, code):
                report.failed += 1
                return
            report.abandoned += 1
            self._recorder.attested("failed")
        else:
            report.completed += 1
            self._recorder.attested("waived" if self._key is None else "signed")
        self._settled(row.job_id)

    async def _sign(self, row: PendingRow) -> None:
        key = self._key
        if key is None:
            await self._store.run(WaiveAttestation(job_id=row.job_id))
            return
        from rookhold_server.signing.item import sign_job  # loads the cryptography

        def attest(reads: ConsistentReads) -> PersistAttestation | None:
            signed = sign_job(reads, row.tenant, row.job_id, key)
            if signed is None:
                return None
            return PersistAttestation(
                job_id=row.job_id,
                tenant=signed.tenant,
                receipt_json=signed.receipt_json,
                result_media_type=profile.RESULT_MEDIA_TYPE,
                result_artifact=signed.result_artifact,
                envelope=signed.envelope,
                key_id=key.key_id,
                now_ms=self._clock(),
            )

        answer = await self._store.run_made(attest)
        if answer is PersistOutcome.STALE_RECEIPT:
            raise StaleReceiptError

    async def _defer(self, row: PendingRow) -> None:
        delay = min(DEFER_MS << min(row.attempt_count, 6), DEFER_MAX_MS)
        try:
            await self._store.run(
                DeferAttestation(job_id=row.job_id, now_ms=self._clock(), delay_ms=delay)
            )
        except Exception as error:  # noqa: BLE001 - it is due again at once
            log.warning("job %s stays due: no deferral (%s)", row.job_id, named(error))

    async def _abandon(self, row: PendingRow, code: str) -> bool:
        log.warning("job %s will not be signed: %s", row.job_id, code)
        try:
            await self._store.run(
                FailAttestation(
                    job_id=row.job_id,
                    code=code,
                    now_ms=self._clock(),
                    profile=str(profile.PROFILE_VERSION),
                )
            )
        except Exception as error:  # noqa: BLE001 - it is due again at once
            log.warning("job %s stays due: no waiver (%s)", row.job_id, named(error))
            return False
        return True


def _permanent(error: Exception) -> str | None:
    """The waiver code of a failure that the stored bytes alone decide."""
    match error:
        case AttestationError():
            return waiver_code(error)
        case EventDataError():
            return "receipt_invalid"
        case _:
            return None
