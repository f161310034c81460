"""Keeping attestations: persisted only while they bind what is stored, and never replaced."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rookhold_store.accounting import row_bytes, settle
from rookhold_store.errors import (
    AttestationImmutableError,
    AttestationUnboundError,
    InvalidOperationError,
)
from rookhold_store.operations import PersistAttestation, PersistOutcome
from rookhold_types.receipts import DIGEST_MEMBER, receipt_digest

if TYPE_CHECKING:
    import apsw

    from rookhold_store.binding import BindingCheck

ARTIFACT_BYTES_MAX: Final = 16 * 1024 * 1024
ENVELOPE_BYTES_MAX: Final = 2 * 1024 * 1024
MEDIA_TYPE_MAX: Final = 255
KEY_ID_MAX: Final = 256

_RECEIPT: Final = """
SELECT j.receipt_json FROM jobs j WHERE j.job_id = ? AND j.tenant = ?
AND j.finished_at_ms IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM retention_tombstones t WHERE t.job_id = j.job_id)
"""
_STORED: Final = """
SELECT receipt_sha256, result_media_type, result_artifact, result_sha256, envelope_json,
  envelope_sha256, key_id FROM job_attestations WHERE job_id = ?
"""
_TAKE_OUTBOX: Final = "DELETE FROM attestation_outbox WHERE job_id = ? RETURNING failure_code"
_INSERT: Final = """
INSERT INTO job_attestations (job_id, created_at_ms, receipt_sha256, result_media_type,
  result_artifact, result_sha256, envelope_json, envelope_sha256, key_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class PreparedPersist:
    """An attestation whose digests were taken and whose binding was tested."""

    def __init__(self, op: PersistAttestation, binding: BindingCheck | None) -> None:
        _check_sizes(op)
        signed = op.receipt_json.encode() if isinstance(op.receipt_json, str) else op.receipt_json
        receipt_sha256 = _receipt_sha256(signed)
        artifact, envelope = bytes(op.result_artifact), bytes(op.envelope)
        result_sha256 = hashlib.sha256(artifact).hexdigest()
        if binding is None or not binding(
            envelope=envelope,
            artifact=artifact,
            job_id=op.job_id,
            tenant=op.tenant,
            receipt_sha256=receipt_sha256,
            result_sha256=result_sha256,
            media_type=op.result_media_type,
        ):
            raise AttestationUnboundError("the attestation does not bind this job and tenant")
        self._op = op
        self._signed = signed
        self._row = (
            receipt_sha256,
            op.result_media_type,
            artifact,
            result_sha256,
            envelope,
            hashlib.sha256(envelope).hexdigest(),
            op.key_id,
        )
        self.size = len(artifact) + len(envelope)

    def run(self, db: apsw.Connection) -> PersistOutcome:
        op = self._op
        stored_receipt = db.execute(_RECEIPT, (op.job_id, op.tenant)).get
        if stored_receipt is None or stored_receipt.encode() != self._signed:
            return PersistOutcome.STALE_RECEIPT
        stored = db.execute(_STORED, (op.job_id,)).get
        if stored is not None:
            if stored != self._row:
                raise AttestationImmutableError("another attestation is stored for this job")
            take_outbox(db, op.job_id)
            return PersistOutcome.EXISTING
        released = take_outbox(db, op.job_id)
        db.execute(_INSERT, (op.job_id, op.now_ms, *self._row))
        settle(db, op.job_id, row_bytes(op.job_id, *self._row) - released, pending=False)
        return PersistOutcome.CREATED


def take_outbox(db: apsw.Connection, job_id: str) -> int:
    """Remove a job's outbox row, if any; return the bytes that it was charged."""
    rows: list[Any] = db.execute(_TAKE_OUTBOX, (job_id,)).fetchall()
    return row_bytes(job_id, *rows[0]) if rows else 0


def _check_sizes(op: PersistAttestation) -> None:
    for name, size, most in (
        ("result_artifact", len(op.result_artifact), ARTIFACT_BYTES_MAX),
        ("envelope", len(op.envelope), ENVELOPE_BYTES_MAX),
        ("result_media_type", len(op.result_media_type), MEDIA_TYPE_MAX),
        ("key_id", len(op.key_id), KEY_ID_MAX),
    ):
        if not 1 <= size <= most:
            raise InvalidOperationError(f"{name} is empty or too large", bytes=size)
    if op.now_ms < 0:
        raise InvalidOperationError("the time is before 1970")


def _receipt_sha256(signed: bytes) -> str:
    """Return the digest that a receipt states of itself, recomputed."""
    try:
        receipt: Any = msgspec.json.decode(signed)
    except msgspec.DecodeError:
        raise AttestationUnboundError("the signed receipt is not JSON") from None
    if not isinstance(receipt, dict) or receipt.get(DIGEST_MEMBER) != receipt_digest(receipt):
        raise AttestationUnboundError("the signed receipt does not carry its own digest")
    return str(receipt[DIGEST_MEMBER])
