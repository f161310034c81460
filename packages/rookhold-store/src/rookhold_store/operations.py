"""The operations of the store as messages, with what each answers.

A message says everything its operation needs, time included, so that the writer could live in
another process. Participants are the one exception: they run where the writer runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

import apsw  # noqa: TC002  # annotations of messages stay resolvable at run time
from msgspec import Struct

from rookhold_types.events import WireEvent
from rookhold_types.states import JobStatus

R_co = TypeVar("R_co", covariant=True)


class Participation(Struct, frozen=True, kw_only=True):
    """What a participant learns of the operation whose transaction it joins."""

    job_id: str
    tenant: str
    now_ms: int
    status: JobStatus  # the job's status after the operation
    event: WireEvent  # the `accepted` or `finished` event
    receipt_json: str | None = None  # at the end: the receipt's exact stored text
    receipt_sha256: str | None = None


class Participant(Protocol):
    """Rows of another layer that live or die with an operation.

    `apply` runs in the writer's thread after the operation's own rows, inside its savepoint; it
    neither commits nor rolls back. What it raises rolls the operation back, alone, and reaches the
    caller: as it is, or, for what a statement raises, as the store's error for it.
    """

    def apply(self, db: apsw.Connection, context: Participation) -> None: ...


class Operation(Struct, Generic[R_co], frozen=True, kw_only=True):
    """Base of the messages; the parameter is the type of the answer."""


class Accepted(Struct, frozen=True, kw_only=True):
    """The job is queued, durably."""

    event: WireEvent
    created_at_ms: int


class Replayed(Struct, frozen=True, kw_only=True):
    """The key was used for the same request before; this is its job."""

    job_id: str


class Started(Struct, frozen=True, kw_only=True):
    event: WireEvent


class Finalised(Struct, frozen=True, kw_only=True):
    event: WireEvent
    receipt_sha256: str
    events: tuple[WireEvent, ...] = ()  # the ones that were given with the ending, before `event`


class PersistOutcome(StrEnum):
    CREATED = "created"
    EXISTING = "existing"  # the very same bytes were stored already
    STALE_RECEIPT = "stale_receipt"  # the stored receipt is not the one that was signed


class Swept(Struct, frozen=True, kw_only=True):
    """What one transaction of retention did; while more remains, another one goes on."""

    jobs_deleted: int
    events_deleted: int
    more_remaining: bool
    hidden: tuple[str, ...] = ()  # the jobs that nobody sees any more since this transaction


class Accept(Operation[Accepted | Replayed], frozen=True, kw_only=True):
    """Create a job with its `accepted` event, its storage account and its idempotency key.

    `spec` has its defaults filled in and is not clamped; `fingerprint` is the digest of its
    canonical JSON. A key that stands for another request raises IdempotencyConflictError.
    """

    job_id: str
    tenant: str
    language: str
    spec: dict[str, Any]
    admitted_mem_mb: int
    now_ms: int
    fingerprint: str
    idempotency_key: str | None = None
    participants: Sequence[Participant] = ()


class Start(Operation[Started | None], frozen=True, kw_only=True):
    """Move a queued job to running; None if it is not queued."""

    job_id: str
    now_ms: int


class Append(Operation[tuple[WireEvent, ...]], frozen=True, kw_only=True):
    """Add up to 256 events, all or none; they share one time. No events is a no-op."""

    job_id: str
    events: Sequence[tuple[str, dict[str, Any]]]
    now_ms: int


class Finalise(Operation[Finalised | None], frozen=True, kw_only=True):
    """End a job; None if it is absent or has ended. The store's own facts overrule the receipt's.

    `effective_spec` is the observed one, to be stored instead of the placeholder; None keeps that.
    `events`, at most 256, are stored before the `finished` event, or nothing is.
    """

    job_id: str
    status: JobStatus
    exit_code: int | None
    now_ms: int
    duration_ms: int
    receipt: Any
    events: Sequence[tuple[str, dict[str, Any]]] = ()
    effective_spec: dict[str, Any] | None = None
    reason: str | None = None
    participants: Sequence[Participant] = ()


class CancelQueued(Operation[Finalised | None], frozen=True, kw_only=True):
    """End a queued job `cancelled`; None if it is another tenant's or not queued."""

    tenant: str
    job_id: str
    now_ms: int
    participants: Sequence[Participant] = ()


class RecoverRunning(Operation[Finalised | None], frozen=True, kw_only=True):
    """End a job that an earlier process left running; None if it is not running."""

    job_id: str
    now_ms: int
    participants: Sequence[Participant] = ()


class PersistAttestation(Operation[PersistOutcome], frozen=True, kw_only=True):
    """Store an attestation if the job's receipt is still byte for byte the one that was signed."""

    job_id: str
    tenant: str
    receipt_json: bytes | str
    result_media_type: str
    result_artifact: bytes
    envelope: bytes
    key_id: str
    now_ms: int


class DeferAttestation(Operation[bool], frozen=True, kw_only=True):
    """Try again later; False if nothing is pending."""

    job_id: str
    now_ms: int
    delay_ms: int


class WaiveAttestation(Operation[bool], frozen=True, kw_only=True):
    """Give a pending attestation up without a code; the next open lists the job again."""

    job_id: str


class FailAttestation(Operation[bool], frozen=True, kw_only=True):
    """Give a pending attestation up for a reason no retry changes; False if none is pending."""

    job_id: str
    code: str
    now_ms: int
    profile: str


class RetryAttestations(Operation[tuple[str, ...]], frozen=True, kw_only=True):
    """Make explicit waivers pending again: those of `job_ids`, or all. Answers whose they were."""

    job_ids: Sequence[str] | None
    now_ms: int


class Sweep(Operation[Swept], frozen=True, kw_only=True):
    """Remove the oldest jobs that ended more than `age_ms` before `now_ms`, in one transaction.

    It takes at most 64 jobs and 4096 events, and of megabytes so few that it stays short. A longer
    history is hidden first and goes over several transactions, its newest events first.
    """

    now_ms: int
    age_ms: int
    max_jobs: int = 64


class ProveWritable(Operation[None], frozen=True, kw_only=True):
    """Commit something that changes nothing; raises what any other commit would."""
