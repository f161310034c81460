"""One signature: from a terminal job's stored bytes to an envelope that was verified again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from rookhold_attestation import (
    Policy,
    PrivateKey,
    build_result_artifact,
    profile,
    sign_result,
    verify_envelope,
)
from rookhold_server.jobs.history import history
from rookhold_types.output import fold

if TYPE_CHECKING:
    from rookhold_server.jobs.ports import JobReads
    from rookhold_store.rows import JobRow


class Signed(Struct, frozen=True, kw_only=True):
    """What is to be persisted, if the receipt is still this one."""

    tenant: str
    receipt_json: str
    result_artifact: bytes
    envelope: bytes


def sign_job(reads: JobReads, tenant: str, job_id: str, key: PrivateKey) -> Signed | None:
    """Sign one job; None if it is gone, not terminal or without a receipt, and so done with.

    Raises AttestationError or EventDataError; `rookhold_attestation.waiver_code` tells the
    permanent ones.
    """
    row = reads.get(tenant, job_id)
    if row is None or row.receipt_json is None:
        return None
    artifact = _artifact(reads, row, row.receipt_json)
    subject = profile.result_subject_name(job_id)
    envelope = sign_result(
        execution_id=job_id,
        tenant=tenant,
        subject_name=subject,
        media_type=profile.RESULT_MEDIA_TYPE,
        artifact=artifact,
        receipt_json=row.receipt_json.encode(),
        keys=[key],
    )
    verify_envelope(
        envelope,
        artifact=artifact,
        keys=[key.public_key],
        policy=Policy(tenant=tenant, subject_name=subject, media_type=profile.RESULT_MEDIA_TYPE),
    )
    return Signed(
        tenant=tenant,
        receipt_json=row.receipt_json,
        result_artifact=artifact,
        envelope=envelope,
    )


def _artifact(reads: JobReads, row: JobRow, receipt_json: str) -> bytes:
    folded = fold(history(reads, row.job_id))
    return build_result_artifact(
        job_id=row.job_id,
        tenant=row.tenant,
        receipt_sha256=_receipt_sha256(receipt_json),
        status=str(row.status),
        exit_code=row.exit_code,
        created_at_ms=row.created_at_ms,
        started_at_ms=row.started_at_ms,
        finished_at_ms=row.finished_at_ms or 0,
        stdout=folded.stdout,
        stderr=folded.stderr,
        truncated=folded.truncated,
        violations=folded.violations,
        stdout_base64=folded.stdout_base64,
        stderr_base64=folded.stderr_base64,
    )


def _receipt_sha256(receipt_json: str) -> str:
    """The receipt's own digest; the statement's checks refuse a receipt without a true one."""
    try:
        receipt = msgspec.json.decode(receipt_json)
    except msgspec.DecodeError:
        return ""
    return str(receipt.get("receipt_sha256")) if isinstance(receipt, dict) else ""
