"""What hangs on a terminal job: its attestation, its place in the queue, what was quarantined."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from rookhold_store.verify.finding import Finding
from rookhold_store.verify.tables import ATTESTATIONS, OUTBOX, QUARANTINE

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

    from rookhold_store.binding import BindingCheck
    from rookhold_store.verify.cells import Table
    from rookhold_store.verify.jobs import Job

_OF_JOB = "WHERE job_id = CAST(? AS TEXT)"


class Hanging:
    """Reads the rows one after another, so that no more than one artifact is in memory."""

    def __init__(self, db: apsw.Connection, job: Job, job_id: str, key: bytes) -> None:
        self._db = db
        self._job = job
        self._job_id = job_id
        self._key = key
        self.retained_bytes = 0
        self.pending = False
        self.digests: dict[str, object] = {}  # of the attestation, for evidence kept elsewhere

    def findings(
        self, receipt_sha256: object, *, hidden: bool, binding: BindingCheck | None
    ) -> Iterator[Finding]:
        attested = False
        for row in self._rows(ATTESTATIONS):
            attested = True
            yield from self._attestation(row, receipt_sha256, hidden=hidden, binding=binding)
            del row
        for row in self._rows(QUARANTINE):
            yield from self._complaints(QUARANTINE, row)
            yield from self._digests(QUARANTINE, row[3:7])
            self._charge(row[0], *row[2:7])
            del row
        for row in self._rows(OUTBOX):
            yield from self._complaints(OUTBOX, row)
            self.pending = row[4] is None
            self._charge(row[0], row[5])
            if not self._job.terminal:
                yield self._find("attestation_outbox.job_id", "is of a job that has not ended")
            if attested:
                yield self._find("attestation_outbox.job_id", "stands beside an attestation")
            if row[1] != self._job.finished_at_ms:
                yield self._find(
                    "attestation_outbox.pending_since_ms", "is not when the job finished"
                )

    def _rows(self, table: Table) -> Iterator[tuple[Any, ...]]:
        return table.rows(self._db, _OF_JOB, (self._key,))

    def _attestation(
        self,
        row: tuple[Any, ...],
        receipt_sha256: object,
        *,
        hidden: bool,
        binding: BindingCheck | None,
    ) -> Iterator[Finding]:
        broken = list(self._complaints(ATTESTATIONS, row))
        yield from broken
        job_id, _, key_id, signed, media_type, result, envelope_digest, artifact, envelope = row
        self._charge(
            job_id, key_id, signed, media_type, result, envelope_digest, artifact, envelope
        )
        self.digests = {
            "receipt_sha256": signed,
            "result_sha256": result,
            "envelope_sha256": envelope_digest,
        }
        if not self._job.terminal:
            yield self._find("job_attestations.job_id", "is of a job that has not ended")
        wrong = list(self._digests(ATTESTATIONS, (result, envelope_digest, artifact, envelope)))
        yield from wrong
        if not hidden and signed != receipt_sha256:
            wrong.append(
                self._find("job_attestations.receipt_sha256", "is not the digest of the receipt")
            )
            yield wrong[-1]
        if broken or wrong or binding is None:
            return
        if not binding(
            envelope=envelope,
            artifact=artifact,
            job_id=self._job_id,
            tenant=self._job.tenant,
            receipt_sha256=signed,
            result_sha256=result,
            media_type=media_type,
        ):
            yield self._find(
                "job_attestations.envelope_json",
                "does not bind job, tenant, receipt_sha256, result_sha256 and result_media_type",
            )
        elif not _signed_with(envelope, key_id):
            yield self._find("job_attestations.key_id", "is not a key that signed the envelope")

    def _digests(self, table: Table, values: tuple[Any, ...]) -> Iterator[Finding]:
        result, envelope_digest, artifact, envelope = values
        for column, digest, stored, content in (
            ("result_artifact", "result_sha256", result, artifact),
            ("envelope_json", "envelope_sha256", envelope_digest, envelope),
        ):
            if isinstance(content, bytes) and hashlib.sha256(content).hexdigest() != stored:
                yield self._find(f"{table.name}.{column}", f"does not have the digest {digest}")

    def _complaints(self, table: Table, row: tuple[Any, ...]) -> Iterator[Finding]:
        for column, problem in table.complaints(row):
            yield self._find(f"{table.name}.{column}", problem)

    def _charge(self, *values: object) -> None:
        self.retained_bytes += charge(*values)

    def _find(self, place: str, problem: str) -> Finding:
        return Finding(place=place, problem=problem, job_id=self._job_id)


def charge(*values: object) -> int:
    """Return what a row with these texts and blobs is charged, whatever their types are."""
    from rookhold_store.accounting import ROW_BYTES

    total = ROW_BYTES
    for value in values:
        if isinstance(value, bytes):
            total += len(value)
        elif isinstance(value, str):
            total += len(value.encode())
    return total


def _signed_with(envelope: bytes, key_id: str) -> bool:
    """Whether the key is among those that the envelope names; one that names none says nothing."""
    try:
        signatures = msgspec.json.decode(envelope)["signatures"]
        named = [signature["keyid"] for signature in signatures]
    except (KeyError, TypeError, msgspec.DecodeError, RecursionError):
        return True
    return key_id in named
