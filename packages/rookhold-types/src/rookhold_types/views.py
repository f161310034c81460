"""What the HTTP API answers about jobs: one type per body, written by servers, read by clients."""

from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from rookhold_types.events import WireEvent
from rookhold_types.jobs import EffectiveJobSpec
from rookhold_types.limits import LimitEnforcement
from rookhold_types.states import JobStatus
from rookhold_types.wire import View


class JobView(View, frozen=True, kw_only=True):
    """One row of a list; the same members open a job's detail."""

    job_id: str
    tenant: str
    language: str
    status: JobStatus
    created_at_ms: int
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    exit_code: int | None = None


class JobPage(View, frozen=True, kw_only=True):
    items: tuple[JobView, ...]
    next_cursor: str | None = None


class ExecutionPolicy(View, frozen=True, kw_only=True):
    """What the executor observed for one run; all None until a receipt says so."""

    sandbox: str | None = None
    isolation_class: str | None = None
    bootstrap_ready: bool | None = None
    isolated: bool | None = None
    seccomp: bool | None = None
    network_allowed: bool | None = None
    networking: str | None = None
    private_rootfs: bool | None = None
    dedicated_bootstrap: bool | None = None
    controls: tuple[str, ...] | None = None
    limit_enforcement: LimitEnforcement | None = None
    runtime_version: str | None = None
    runtime_sha256: str | None = None
    rootfs_sha256: str | None = None
    config_sha256: str | None = None

    @classmethod
    def from_receipt(cls, receipt: dict[str, Any] | None) -> "ExecutionPolicy":
        """Return what `receipt` observed; nothing unless it says whether it was ready."""
        if receipt is None or not isinstance(receipt.get("bootstrap_ready"), bool):
            return cls()
        observed = {name: receipt.get(name) for name in _OBSERVED}
        try:
            return msgspec.convert({**observed, "sandbox": receipt.get("backend")}, cls)
        except msgspec.ValidationError:  # a receipt of another make: show nothing, not half of it
            return cls()


_OBSERVED: Final = tuple(set(ExecutionPolicy.__struct_fields__) - {"sandbox"})


class AttestationState(StrEnum):
    AVAILABLE = "available"
    PENDING = "pending"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"


class JobAttestationStatus(View, frozen=True, kw_only=True):
    """Whether the job is signed; members after `failure` are None unless it is."""

    available: bool = False
    state: AttestationState = AttestationState.UNAVAILABLE
    failure: str | None = None
    tenant: str | None = None
    key_id: str | None = None
    receipt_sha256: str | None = None
    result_media_type: str | None = None
    result_sha256: str | None = None
    result_size_bytes: int | None = None
    envelope_sha256: str | None = None
    envelope_size_bytes: int | None = None
    envelope_url: str | None = None
    result_artifact_url: str | None = None


class QueueView(View, frozen=True, kw_only=True):
    """Where a queued job stands among its own tenant's; the estimate is None without a basis."""

    position: int
    estimated_wait_ms: int | None = None


class JobDetail(View, frozen=True, kw_only=True):
    """A job with all that is known of it."""

    job_id: str
    tenant: str
    language: str
    status: JobStatus
    created_at_ms: int
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    exit_code: int | None = None
    requested_spec: dict[str, Any]  # as stored; one of an older store need not be a JobSpec
    effective_spec: EffectiveJobSpec | None = None
    execution_policy: ExecutionPolicy = ExecutionPolicy()
    receipt: dict[str, Any] | None = None
    receipt_sha256: str | None = None
    attestation: JobAttestationStatus = JobAttestationStatus()
    queue: QueueView | None = None


class SubmitResponse(View, frozen=True, kw_only=True):
    """The answer to a submission; `status` is `queued` also when a finished job is replayed."""

    job_id: str
    status: JobStatus = JobStatus.QUEUED
    stream_url: str
    replay_url: str
    stream_ticket_url: str

    @classmethod
    def of(cls, job_id: str) -> "SubmitResponse":
        root = f"/v1/jobs/{job_id}"
        return cls(
            job_id=job_id,
            stream_url=f"{root}/stream",
            replay_url=f"{root}/replay",
            stream_ticket_url=f"{root}/stream-ticket",
        )


class StreamTicket(View, frozen=True, kw_only=True):
    """Opens one stream of one job, once."""

    ticket: str
    stream_url: str
    expires_at_ms: int

    @classmethod
    def of(cls, job_id: str, ticket: str, expires_at_ms: int) -> "StreamTicket":
        return cls(
            ticket=ticket,
            stream_url=f"/v1/jobs/{job_id}/stream?ticket={ticket}",
            expires_at_ms=expires_at_ms,
        )


class CancelResponse(View, frozen=True, kw_only=True):
    job: JobView
    cancellation_requested: bool
    already_terminal: bool


class ReplayPage(View, frozen=True, kw_only=True):
    """A page of history; `complete` alone says that nothing will ever follow it."""

    events: tuple[WireEvent, ...]
    next_cursor: int | None = None
    complete: bool = False


class Artifact(View, frozen=True, kw_only=True):
    """A collected output file."""

    path: str
    content_base64: str
    size_bytes: int
    sha256: str


class ViolationView(View, frozen=True, kw_only=True):
    rule: str
    detail: dict[str, Any]


class ResultView(View, frozen=True, kw_only=True):
    """What a job printed and left; the base64 members exist only where the text is not exact."""

    job_id: str
    status: JobStatus
    exit_code: int | None = None
    duration_ms: int | None = None
    stdout: str
    stderr: str
    stdout_base64: str | UnsetType = UNSET
    stderr_base64: str | UnsetType = UNSET
    truncated: bool = False
    violations: tuple[ViolationView, ...] = ()
    artifacts: tuple[Artifact, ...] = ()


class ErrorMember(View, frozen=True, kw_only=True):
    code: str
    message: str
    request_id: str
    retryable: bool


class ErrorBody(View, frozen=True, kw_only=True):
    """The one shape of every refusal."""

    error: ErrorMember
