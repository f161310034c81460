"""The receipt of a terminal job: how it is read, digested, and what stored specs it refers to."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from rookhold_types.canonical import canonical, canonical_sha256
from rookhold_types.jobs import JobSpec, Requirements
from rookhold_types.limits import EffectiveLimits, LimitEnforcement, RequestedLimits
from rookhold_types.wire import View, plain

RECEIPT_VERSION: Final = 1
STORAGE_VERSION: Final = 2
OUTPUT_ENCODING: Final = "utf8-records-with-eol"
DIGEST_MEMBER: Final = "receipt_sha256"

POLICY_MEMBERS: Final = (
    "backend",
    "minimum_isolation",
    "isolation_class",
    "bootstrap_ready",
    "isolated",
    "seccomp",
    "network_allowed",
    "networking",
    "private_rootfs",
    "dedicated_bootstrap",
    "controls",
    "effective_limits",
    "limit_enforcement",
    "runtime_version",
    "runtime_sha256",
    "rootfs_sha256",
    "config_sha256",
)


class ResourceUsage(View, frozen=True, kw_only=True):
    """What the job used, None where the backend cannot measure it.

    `samples` are at most 256 triples of milliseconds since start, CPU microseconds, memory bytes.
    """

    wall_time_ms: int
    cpu_time_usec: int | None = None
    memory_peak_bytes: int | None = None
    samples: tuple[tuple[int, int, int], ...] | None = None


class StreamOutput(View, frozen=True, kw_only=True):
    """What the executor read of one stream, and what it offered to be kept."""

    bytes_seen: int
    bytes_offered_to_sink: int
    records_offered_to_sink: int
    raw_sha256: str
    executor_truncated: bool


class ExecutorOutput(View, frozen=True, kw_only=True):
    stdout: StreamOutput
    stderr: StreamOutput


class OutputEvidence(View, frozen=True, kw_only=True):
    """Digests of the retained raw bytes of each stream, and of all that was seen of it."""

    encoding: str = OUTPUT_ENCODING
    stdout_bytes: int
    stderr_bytes: int
    stdout_sha256: str
    stderr_sha256: str
    stdout_bytes_seen: int | None = None  # None: nothing was read, because nothing ran
    stderr_bytes_seen: int | None = None
    stdout_seen_sha256: str | None = None
    stderr_seen_sha256: str | None = None
    truncated: bool = False


class FileDigest(View, frozen=True, kw_only=True):
    """One file of a job without its content."""

    path: str
    size_bytes: int
    sha256: str


class EventChain(View, frozen=True, kw_only=True):
    version: int
    head: str | None
    events: int
    event_count: int | None = None
    verified_events: int | None = None
    legacy_events: int | None = None
    complete: bool


class Receipt(View, frozen=True, kw_only=True):
    """A receipt as a reader sees it: every member is optional, and unknown ones are left out.

    Digests are computed over the receipt as received, never over this view.
    """

    version: int | None = None
    job_id: str | None = None
    outcome: str | None = None
    exit_code: int | None = None
    killed_by: str | None = None
    terminal_reason: str | None = None
    created_at_ms: int | None = None
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    duration_ms: int | None = None
    evidence_complete: bool | None = None
    requested_limits: RequestedLimits | None = None
    requirements: dict[str, Any] | None = None
    code_sha256: str | None = None
    stdin_sha256: str | None = None
    resource_usage: ResourceUsage | None = None
    executor_output: ExecutorOutput | None = None
    output: OutputEvidence | None = None
    input_files: tuple[FileDigest, ...] | None = None
    artifacts: tuple[FileDigest, ...] | None = None
    backend: str | None = None
    minimum_isolation: str | None = None
    isolation_class: str | None = None
    bootstrap_ready: bool | None = None
    isolated: bool | None = None
    seccomp: bool | None = None
    private_rootfs: bool | None = None
    dedicated_bootstrap: bool | None = None
    network_allowed: bool | None = None
    networking: str | None = None
    controls: tuple[str, ...] | None = None
    effective_limits: EffectiveLimits | None = None
    limit_enforcement: LimitEnforcement | None = None
    runtime_version: str | None = None
    runtime_sha256: str | None = None
    rootfs_sha256: str | None = None
    config_sha256: str | None = None
    runtime_pack: str | None = None
    policy_sha256: str | None = None
    event_chain: EventChain | None = None
    receipt_sha256: str | None = None


class SealedReceipt(Struct, frozen=True, kw_only=True):
    """A receipt ready to be stored: its canonical JSON with its own digest in it."""

    text: bytes
    sha256: str


def receipt_digest(receipt: Mapping[str, Any]) -> str:
    """Return the digest of a receipt over every member, known or not, but the digest itself."""
    return canonical_sha256({k: v for k, v in receipt.items() if k != DIGEST_MEMBER})


def seal_receipt(receipt: Mapping[str, Any]) -> SealedReceipt:
    """Return the text to store for `receipt`; a digest already in it is replaced."""
    digest = receipt_digest(receipt)
    return SealedReceipt(text=canonical({**receipt, DIGEST_MEMBER: digest}), sha256=digest)


def policy_sha256(evidence: Mapping[str, Any]) -> str:
    """Return the digest of the observed policy; a member that is missing is a KeyError."""
    return canonical_sha256({name: evidence[name] for name in POLICY_MEMBERS})


# Stored before anything of a job has run, so that a crash leaves nothing that looks like evidence.
_NOTHING_OBSERVED: Final[Mapping[str, Any]] = MappingProxyType(plain(EffectiveLimits.none()))


def placeholder_spec(requirements: Requirements) -> dict[str, Any]:
    """Return what is stored as the effective spec when a job starts: nothing observed yet."""
    return {
        "storage_version": STORAGE_VERSION,
        "limits": dict(_NOTHING_OBSERVED),
        "requirements": plain(requirements),
        "isolation_class": None,
    }


def effective_stored_spec(
    spec: JobSpec, *, limits: EffectiveLimits, isolation_class: str | None
) -> dict[str, Any]:
    """Return what is stored as the effective spec at the end; never the code or the stdin.

    `isolation_class` is None unless the job was observed ready.
    """
    return {
        "storage_version": STORAGE_VERSION,
        "limits": plain(limits),
        "requirements": plain(spec.requirements),
        "files": [plain(file) for file in spec.files],
        "outputs": list(spec.outputs),
        "runtime": spec.runtime,
        "isolation_class": isolation_class,
    }
