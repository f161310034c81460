"""What a gateway answers, as frozen values; members this client does not know are left out."""

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ._members import Members
from .errors import IntegrityError, ProtocolError

TERMINAL: Final = frozenset(
    {"succeeded", "failed", "timed_out", "oom_killed", "cancelled", "error"}
)


def _decode_base64(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise ProtocolError(f"the answer's member {name!r} is not base64") from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedJob:
    """An accepted job. `replayed`: the idempotency key was known, so no second job was made."""

    job_id: str
    status: str
    replayed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The short view of a job, as lists show it. Times are Unix milliseconds."""

    job_id: str
    tenant: str
    language: str
    status: str
    created_at_ms: int
    started_at_ms: int | None
    finished_at_ms: int | None
    exit_code: int | None

    @property
    def finished(self) -> bool:
        return self.status in TERMINAL

    @staticmethod
    def read(value: object) -> "Job":
        return Job(**_job_members(Members(value)))


def _job_members(of: Members) -> dict[str, Any]:
    return {
        "job_id": of.text("job_id"),
        "tenant": of.text("tenant"),
        "language": of.text("language"),
        "status": of.text("status"),
        "created_at_ms": of.integer("created_at_ms"),
        "started_at_ms": of.maybe_integer("started_at_ms"),
        "finished_at_ms": of.maybe_integer("finished_at_ms"),
        "exit_code": of.maybe_integer("exit_code"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestationStatus:
    """Whether a signed envelope exists: `available`, `pending`, `failed` or `unavailable`."""

    available: bool
    state: str
    failure: str | None
    key_id: str | None
    envelope_sha256: str | None
    result_sha256: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDetail(Job):
    """Everything about one job. `receipt` is None until the job has ended.

    `execution_policy` is what the executor observed; every member is null before that.
    """

    requested_spec: Mapping[str, Any] = field(repr=False)
    effective_spec: Mapping[str, Any] | None = field(repr=False)
    execution_policy: Mapping[str, Any]
    receipt: Mapping[str, Any] | None
    receipt_sha256: str | None
    attestation: AttestationStatus
    queue_position: int | None
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def killed_by(self) -> str | None:
        """What ended the job from outside, such as `wall-clock` or `signal-9`; else None."""
        value = (self.receipt or {}).get("killed_by")
        return value if isinstance(value, str) else None

    @staticmethod
    def read(value: object) -> "JobDetail":
        of = Members(value)
        signed = of.within("attestation")
        queue = of.maybe_mapping("queue")
        return JobDetail(
            **_job_members(of),
            requested_spec=of.mapping("requested_spec"),
            effective_spec=of.maybe_mapping("effective_spec"),
            execution_policy=of.mapping("execution_policy"),
            receipt=of.maybe_mapping("receipt"),
            receipt_sha256=of.maybe_text("receipt_sha256"),
            attestation=AttestationStatus(
                available=signed.flag("available"),
                state=signed.text("state"),
                failure=signed.maybe_text("failure"),
                key_id=signed.maybe_text("key_id"),
                envelope_sha256=signed.maybe_text("envelope_sha256"),
                result_sha256=signed.maybe_text("result_sha256"),
            ),
            queue_position=None if queue is None else Members(queue).maybe_integer("position"),
            raw=of.raw,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledJob:
    """The answer to a cancel: the job as it was read, and what the request changed."""

    job: Job
    cancellation_requested: bool
    already_terminal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One entry of a job's history. `seq` counts from 1 without a gap; kinds may grow."""

    seq: int
    ts_ms: int
    kind: str
    data: Mapping[str, Any]
    prev_hash: str
    event_hash: str
    hash_version: int

    @property
    def output(self) -> bytes:
        """The exact bytes a `stdout` or `stderr` event stands for; empty for other kinds."""
        if self.kind not in {"stdout", "stderr"}:
            return b""
        of = Members(self.data)
        raw = of.maybe_text("raw_base64")
        line = of.text("line").encode() if raw is None else _decode_base64(raw, "raw_base64")
        return line + b"\n" if of.flag("eol") else line

    @staticmethod
    def read(value: object) -> "Event":
        of = Members(value)
        return Event(
            seq=of.integer("seq"),
            ts_ms=of.integer("ts_ms"),
            kind=of.text("kind"),
            data=of.mapping("data"),
            prev_hash=of.text("prev_hash"),
            event_hash=of.text("event_hash"),
            hash_version=of.integer("hash_version"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """An output file. Its content was checked against `sha256` when it was read."""

    path: str
    content: bytes = field(repr=False)
    size_bytes: int
    sha256: str

    @staticmethod
    def read(value: object) -> "Artifact":
        of = Members(value)
        content = _decode_base64(of.text("content_base64"), "content_base64")
        found = Artifact(
            path=of.text("path"),
            content=content,
            size_bytes=of.integer("size_bytes"),
            sha256=of.text("sha256"),
        )
        if len(content) != found.size_bytes or sha256(content) != found.sha256:
            raise IntegrityError("an output file does not match its own size and digest")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule the job ran into, such as `wall_clock_exceeded`."""

    rule: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a job printed and how it ended, or, while `finished` is false, what is stored so far.

    `stdout` is text; where the job printed bytes that are no UTF-8, `stdout_bytes` is exact.
    `exit_code` is None when the job did not end by itself.
    """

    job_id: str
    status: str
    exit_code: int | None
    duration_ms: int | None
    stdout: str = field(repr=False)
    stderr: str = field(repr=False)
    stdout_bytes: bytes = field(repr=False)
    stderr_bytes: bytes = field(repr=False)
    truncated: bool
    violations: tuple[Violation, ...]
    artifacts: tuple[Artifact, ...]
    raw: Mapping[str, Any] = field(repr=False)

    @property
    def finished(self) -> bool:
        return self.status in TERMINAL

    @staticmethod
    def read(value: object) -> "Result":
        of = Members(value)
        return Result(
            job_id=of.text("job_id"),
            status=of.text("status"),
            exit_code=of.maybe_integer("exit_code"),
            duration_ms=of.maybe_integer("duration_ms"),
            stdout=of.text("stdout"),
            stderr=of.text("stderr"),
            stdout_bytes=_stream(of, "stdout"),
            stderr_bytes=_stream(of, "stderr"),
            truncated=of.flag("truncated"),
            violations=tuple(_violation(item) for item in of.items("violations")),
            artifacts=tuple(Artifact.read(item) for item in of.items("artifacts")),
            raw=of.raw,
        )


def _stream(of: Members, name: str) -> bytes:
    exact = of.maybe_text(f"{name}_base64")
    return of.text(name).encode() if exact is None else _decode_base64(exact, f"{name}_base64")


def _violation(value: object) -> Violation:
    of = Members(value)
    return Violation(rule=of.text("rule"), detail=of.mapping("detail"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Download:
    """Exactly the stored bytes, checked against the digest that came with them."""

    content: bytes = field(repr=False)
    sha256: str
    media_type: str


def sha256(content: bytes) -> str:
    """Return the lowercase hex digest that the whole API speaks in."""
    return hashlib.sha256(content).hexdigest()
