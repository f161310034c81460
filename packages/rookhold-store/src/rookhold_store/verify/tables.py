"""Every table of the schema with the rules of its columns, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rookhold_store.verify.cells import (
    Column,
    Table,
    between,
    hex64,
    json_text,
    key,
    link,
    long,
    not_negative,
    said,
    status,
)
from rookhold_types.limits import LIMIT_BOUNDS
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from rookhold_store.verify.cells import Complaint

MEM_MB: Final = LIMIT_BOUNDS["mem_mb"]


def _job_times(row: Any) -> Complaint | None:
    state, started, finished = row[3], row[6], row[7]
    if state == JobStatus.QUEUED:
        if started is not None:
            return "started_at_ms", "is set for a job that is queued"
        return None if finished is None else ("finished_at_ms", "is set for a job that is queued")
    if state == JobStatus.RUNNING:
        if started is None:
            return "started_at_ms", "is null for a job that is running"
        return None if finished is None else ("finished_at_ms", "is set for a job that is running")
    return None if finished is not None else ("finished_at_ms", "is null for a job that has ended")


def _event_hashes(row: Any) -> Complaint | None:
    prev_hash, event_hash, version = row[5:8]
    if version == 0:
        if prev_hash:
            return "prev_hash", "is set for an event of before the hashes"
        return ("event_hash", "is set for an event of before the hashes") if event_hash else None
    return None if event_hash else ("event_hash", "is empty")


def _waiver(row: Any) -> Complaint | None:
    failed, code, profile = row[4:7]
    if (failed is None) != (code is None):
        return "failure_code", "does not agree with failed_at_ms"
    if (failed is None) != (profile is None):
        return "failure_profile", "does not agree with failed_at_ms"
    return None


JOBS: Final = Table(
    "jobs",
    (
        Column("job_id", str, said),
        Column("tenant", str, said),
        Column("language", str, said),
        Column("status", str, status),
        Column("admitted_mem_mb", int, between(MEM_MB.floor, MEM_MB.ceiling)),
        Column("created_at_ms", int, not_negative),
        Column("started_at_ms", int, not_negative, null=True),
        Column("finished_at_ms", int, not_negative, null=True),
        Column("exit_code", int, between(-(2**31), 2**31 - 1), null=True),
        Column("spec_json", str, json_text),
        Column("effective_spec_json", str, json_text, null=True),
        Column("receipt_json", str, json_text, null=True),
    ),
    _job_times,
)
EVENTS: Final = Table(
    "events",
    (
        Column("job_id", str, said),
        Column("seq", int, between(1, 2**63 - 1)),
        Column("ts_ms", int, not_negative),
        Column("kind", str, said),
        Column("data_json", str),  # its JSON is decoded, and so judged, where the chain is followed
        Column("prev_hash", str, link),
        Column("event_hash", str, link),
        Column("hash_version", int, between(0, 1)),
    ),
    _event_hashes,
)
ATTESTATIONS: Final = Table(
    "job_attestations",
    (
        Column("job_id", str, said),
        Column("created_at_ms", int, not_negative),
        Column("key_id", str, long(1, 256)),
        Column("receipt_sha256", str, hex64),
        Column("result_media_type", str, long(1, 255)),
        Column("result_sha256", str, hex64),
        Column("envelope_sha256", str, hex64),
        Column("result_artifact", bytes, long(1, 16 * 1024 * 1024)),
        Column("envelope_json", bytes, long(1, 2 * 1024 * 1024)),
    ),
)
QUARANTINE: Final = Table(
    "attestation_quarantine",
    (
        Column("job_id", str, said),
        Column("at_ms", int, not_negative),
        Column("reason", str, said),
        Column("result_sha256", str, hex64),
        Column("envelope_sha256", str, hex64),
        Column("result_artifact", bytes, long(1, 16 * 1024 * 1024)),
        Column("envelope_json", bytes, long(1, 2 * 1024 * 1024)),
    ),
)
OUTBOX: Final = Table(
    "attestation_outbox",
    (
        Column("job_id", str, said),
        Column("pending_since_ms", int, not_negative),
        Column("attempt_count", int, not_negative),
        Column("next_attempt_ms", int, not_negative),
        Column("failed_at_ms", int, not_negative, null=True),
        Column("failure_code", str, said, null=True),
        Column("failure_profile", str, said, null=True),
    ),
    _waiver,
)
KEYS: Final = Table(
    "idempotency_keys",
    (
        Column("tenant", str, said),
        Column("idempotency_key", str, key),
        Column("request_sha256", str, hex64),
        Column("job_id", str, said),
        Column("created_at_ms", int, not_negative),
    ),
)
LEDGER: Final = Table(
    "job_storage_usage",
    (
        Column("job_id", str, said),
        Column("tenant", str, said),
        Column("retained_bytes", int, not_negative),
        Column("reserved_bytes", int, not_negative),
        Column("requested_mem_mb", int, between(MEM_MB.floor, MEM_MB.ceiling)),
    ),
)
TOMBSTONES: Final = Table(
    "retention_tombstones",
    (Column("job_id", str, said), Column("marked_at_ms", int, not_negative)),
)
TENANT_SUMS: Final = Table(
    "tenant_storage_usage",
    (Column("tenant", str, said), Column("charged_bytes", int, not_negative)),
)
TOTAL: Final = Table(
    "storage_usage_total",
    (Column("id", int, between(1, 1)), Column("charged_bytes", int, not_negative)),
)
META: Final = Table(
    "store_meta",
    (Column("id", int, between(1, 1)), Column("accounting_revision", int, between(1, 2))),
)
HISTORY: Final = Table(
    "schema_migrations",
    (Column("version", int, between(1, 4)), Column("applied_at_ms", int, not_negative)),
)
TABLES: Final = (
    JOBS,
    EVENTS,
    ATTESTATIONS,
    QUARANTINE,
    OUTBOX,
    KEYS,
    LEDGER,
    TOMBSTONES,
    TENANT_SUMS,
    TOTAL,
    META,
    HISTORY,
)
