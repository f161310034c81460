"""Stored rows as the API shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from rookhold_types.jobs import EffectiveJobSpec, JobSpec
from rookhold_types.limits import EffectiveLimits, LimitEnforcement
from rookhold_types.output import fold
from rookhold_types.views import (
    Artifact,
    AttestationState,
    ExecutionPolicy,
    JobAttestationStatus,
    JobDetail,
    JobView,
    ResultView,
    ViolationView,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rookhold_store.rows import AttestationStatusRow, JobRow, JobSummary, OutboxRow
    from rookhold_types.events import WireEvent


def job_view(row: JobSummary | JobRow) -> JobView:
    return JobView(**{name: getattr(row, name) for name in JobView.__struct_fields__})


def detail_view(row: JobRow, attestation: JobAttestationStatus) -> JobDetail:
    """A job without its place in the queue, which is not the store's to know."""
    receipt = None if row.receipt_json is None else _object(row.receipt_json)
    digest = None if receipt is None else receipt.get("receipt_sha256")
    return JobDetail(
        **{name: getattr(row, name) for name in JobView.__struct_fields__},
        requested_spec=_object(row.spec_json),
        effective_spec=_effective_spec(row, receipt),
        execution_policy=ExecutionPolicy.from_receipt(receipt),
        receipt=receipt,
        receipt_sha256=digest if isinstance(digest, str) else None,
        attestation=attestation,
    )


def result_view(row: JobSummary, events: Iterable[WireEvent]) -> ResultView:
    """What a job printed and left so far."""
    folded = fold(events)
    ran = row.started_at_ms is not None and row.finished_at_ms is not None
    exact = {
        name: text
        for name in ("stdout_base64", "stderr_base64")
        if (text := getattr(folded, name)) is not None
    }
    return ResultView(
        job_id=row.job_id,
        status=row.status,
        exit_code=row.exit_code,
        # Of the wall clock, which may have been set back meanwhile; the receipt's is of another.
        duration_ms=max(0, (row.finished_at_ms or 0) - (row.started_at_ms or 0)) if ran else None,
        stdout=folded.stdout,
        stderr=folded.stderr,
        truncated=folded.truncated,
        violations=msgspec.convert(folded.violations, tuple[ViolationView, ...]),
        artifacts=msgspec.convert(folded.artifacts, tuple[Artifact, ...]),
        **exact,
    )


def attestation_view(
    row: JobSummary | JobRow,
    stored: AttestationStatusRow | None,
    outbox: OutboxRow | None,
    *,
    signing: bool,
) -> JobAttestationStatus:
    """Whether the job is signed, will be, or why it never will."""
    if stored is not None:
        root = f"/v1/jobs/{row.job_id}"
        return JobAttestationStatus(
            available=True,
            state=AttestationState.AVAILABLE,
            tenant=stored.tenant,
            key_id=stored.key_id,
            receipt_sha256=stored.receipt_sha256,
            result_media_type=stored.result_media_type,
            result_sha256=stored.result_sha256,
            result_size_bytes=stored.result_size_bytes,
            envelope_sha256=stored.envelope_sha256,
            envelope_size_bytes=stored.envelope_size_bytes,
            envelope_url=f"{root}/attestation",
            result_artifact_url=f"{root}/result-artifact",
        )
    if outbox is not None and outbox.failed:
        return JobAttestationStatus(state=AttestationState.FAILED, failure=outbox.failure_code)
    if outbox is not None and signing and row.terminal:
        return JobAttestationStatus(state=AttestationState.PENDING)
    return JobAttestationStatus()


def _effective_spec(row: JobRow, receipt: dict[str, Any] | None) -> EffectiveJobSpec | None:
    """Only what a receipt observed: its limits together with what says they were enforced."""
    if receipt is None:
        return None
    try:
        limits = msgspec.convert(receipt.get("effective_limits"), EffectiveLimits)
        msgspec.convert(receipt.get("limit_enforcement"), LimitEnforcement)
        spec = msgspec.json.decode(row.spec_json, type=JobSpec)
    except msgspec.DecodeError:
        return None
    ready = receipt.get("bootstrap_ready") is True
    observed = receipt.get("isolation_class")
    return EffectiveJobSpec.of(
        spec, limits, observed if ready and isinstance(observed, str) else None
    )


def _object(text: str) -> dict[str, Any]:
    value = msgspec.json.decode(text)
    return value if isinstance(value, dict) else {}
