"""Rows as they leave the store: typed, in column order, so that a wrong shape fails the read."""

from __future__ import annotations

from msgspec import Struct

from rookhold_types.events import WireEvent
from rookhold_types.states import TERMINAL, JobStatus


class JobSummary(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a list shows of a job; comes from an index alone."""

    job_id: str
    tenant: str
    language: str
    status: JobStatus
    created_at_ms: int
    started_at_ms: int | None
    finished_at_ms: int | None
    exit_code: int | None

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL


class JobRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A whole job, its JSON as stored."""

    job_id: str
    tenant: str
    language: str
    status: JobStatus
    created_at_ms: int
    started_at_ms: int | None
    finished_at_ms: int | None
    exit_code: int | None
    admitted_mem_mb: int
    spec_json: str
    effective_spec_json: str | None
    receipt_json: str | None

    @property
    def terminal(self) -> bool:
        return self.status in TERMINAL


class Cursor(Struct, frozen=True, order=True):
    """A place in an order by creation time, then id; the next page begins beyond it."""

    created_at_ms: int
    job_id: str


class QueuedRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A job that waits, as the scheduler takes it back after a restart."""

    job_id: str
    tenant: str
    created_at_ms: int
    admitted_mem_mb: int

    @property
    def cursor(self) -> Cursor:
        return Cursor(self.created_at_ms, self.job_id)


class StorageUsage(Struct, frozen=True, kw_only=True):
    """What a tenant's jobs, or all of them, are charged: bytes that are there, and bytes promised.

    The promise is what an unfinished job may still write and what a signature will take.
    """

    retained_bytes: int
    reserved_bytes: int

    @property
    def charged_bytes(self) -> int:
        return self.retained_bytes + self.reserved_bytes


class ReplayRows(Struct, frozen=True, kw_only=True):
    """A page of a history; `complete` if the job is terminal and nothing follows the page."""

    events: tuple[WireEvent, ...]
    complete: bool


class EventText(Struct, frozen=True):
    """An event as readers of a stream get it; `parts` make up the JSON of a WireEvent.

    Its data is one of them as it is stored: an event can be megabytes, which nobody copies here.
    """

    seq: int
    kind: str
    parts: tuple[bytes, ...]

    @property
    def size(self) -> int:
        return sum(map(len, self.parts))


class EventTexts(Struct, frozen=True, kw_only=True):
    """A part of a history; `complete` if the job is terminal and nothing follows."""

    events: tuple[EventText, ...]
    complete: bool


class KeyRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an idempotency key stands for."""

    job_id: str
    request_sha256: str


class OutboxRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A job that waits for its attestation, or that was given up with a code."""

    job_id: str
    pending_since_ms: int
    attempt_count: int
    next_attempt_ms: int
    failed_at_ms: int | None
    failure_code: str | None
    failure_profile: str | None

    @property
    def failed(self) -> bool:
        return self.failed_at_ms is not None


class PendingRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A job whose attestation is due."""

    job_id: str
    tenant: str
    pending_since_ms: int
    attempt_count: int
    next_attempt_ms: int


class AttestationStatusRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A stored attestation without its bytes."""

    job_id: str
    tenant: str
    created_at_ms: int
    key_id: str
    receipt_sha256: str
    result_media_type: str
    result_sha256: str
    result_size_bytes: int
    envelope_sha256: str
    envelope_size_bytes: int


class AttestationRow(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A stored attestation; the bytes are exactly those that were persisted."""

    job_id: str
    tenant: str
    created_at_ms: int
    key_id: str
    receipt_sha256: str
    result_media_type: str
    result_sha256: str
    envelope_sha256: str
    result_artifact: bytes
    envelope_json: bytes


class Counts(Struct, frozen=True, kw_only=True):
    """Unfinished jobs of one tenant."""

    queued: int
    running: int
