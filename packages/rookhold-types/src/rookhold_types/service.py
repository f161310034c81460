"""What the HTTP API answers about the service itself: capabilities, status, caller, key."""

from rookhold_types import limits as compiled
from rookhold_types.limits import LimitEnforcement
from rookhold_types.wire import View


class ExecutionPosture(View, frozen=True, kw_only=True):
    """What the configured backend is set up to give: a posture, never evidence."""

    backend: str
    isolation_class: str
    isolated: bool
    private_rootfs: bool
    dedicated_bootstrap: bool
    seccomp: bool
    networking: str
    controls: tuple[str, ...]
    limit_enforcement: LimitEnforcement


class CapabilityLimits(View, frozen=True, kw_only=True):
    """Ceilings of this server; only memory depends on its configuration."""

    wall_seconds_max: int
    cpu_seconds_max: int
    mem_mb_max: int
    concurrent_mem_mb_max: int
    pids_max: int
    file_mb_max: int
    output_lines_max: int
    output_bytes_per_stream_max: int
    output_record_bytes_max: int
    code_bytes_max: int
    stdin_bytes_max: int
    input_files_max: int
    input_file_bytes_max: int
    input_bytes_max: int
    output_files_max: int
    output_file_bytes_max: int
    output_bytes_max: int

    @classmethod
    def compiled(cls, *, mem_mb_max: int, concurrent_mem_mb_max: int) -> "CapabilityLimits":
        return cls(
            wall_seconds_max=compiled.LIMIT_BOUNDS["wall_seconds"].ceiling,
            cpu_seconds_max=compiled.LIMIT_BOUNDS["cpu_seconds"].ceiling,
            mem_mb_max=mem_mb_max,
            concurrent_mem_mb_max=concurrent_mem_mb_max,
            pids_max=compiled.LIMIT_BOUNDS["max_pids"].ceiling,
            file_mb_max=compiled.LIMIT_BOUNDS["max_file_mb"].ceiling,
            output_lines_max=compiled.OUTPUT_LINES_MAX,
            output_bytes_per_stream_max=compiled.OUTPUT_BYTES_MAX,
            output_record_bytes_max=compiled.OUTPUT_RECORD_BYTES_MAX,
            code_bytes_max=compiled.CODE_BYTES_MAX,
            stdin_bytes_max=compiled.STDIN_BYTES_MAX,
            input_files_max=compiled.INPUT_FILES_MAX,
            input_file_bytes_max=compiled.INPUT_FILE_BYTES_MAX,
            input_bytes_max=compiled.INPUT_BYTES_MAX,
            output_files_max=compiled.OUTPUT_FILES_MAX,
            output_file_bytes_max=compiled.OUTPUT_FILE_BYTES_MAX,
            output_bytes_max=compiled.OUTPUT_FILES_BYTES_MAX,
        )


class Features(View, frozen=True, kw_only=True):
    """What this server can do; a feature that does not exist yet is false."""

    result_wait: bool = False
    cancellation: bool = False
    event_cursors: bool = False
    stream_tickets: bool = False
    receipts: bool = False
    signed_attestations: bool = False
    attestation_wait: bool = False


class AttestationCapabilities(View, frozen=True, kw_only=True):
    """How jobs are signed; all but `enabled` is None while signing is off."""

    enabled: bool = False
    algorithm: str | None = None
    envelope_format: str | None = None
    key_id: str | None = None
    public_key_url: str | None = None


class Capabilities(View, frozen=True, kw_only=True):
    version: str
    languages: tuple[str, ...]
    execution: ExecutionPosture
    limits: CapabilityLimits
    features: Features
    attestations: AttestationCapabilities
    runtime_packs: tuple[str, ...] = ()


class SchedulerStatus(View, frozen=True, kw_only=True):
    """Workers are the server's; queue and running jobs are the asking tenant's."""

    workers: int
    queue_capacity: int
    queue_depth: int
    running: int
    shutting_down: bool


class Status(View, frozen=True, kw_only=True):
    version: str
    sandbox: str
    uptime_seconds: int
    environment: str
    execution: ExecutionPosture
    scheduler: SchedulerStatus
    storage_ready: bool


class WhoAmI(View, frozen=True, kw_only=True):
    tenant: str
    principal_id: str
    credential_id: str | None = None
    auth_method: str
    scopes: tuple[str, ...]
    expires_at_ms: int | None = None


class PublicKeyView(View, frozen=True, kw_only=True):
    """The key that signs now; fetching it from the server that signs proves nothing."""

    algorithm: str
    key_id: str
    public_key_pem: str
    trust_notice: str


class ProtectedResourceView(View, frozen=True, kw_only=True):
    """What a client needs to know to get an access token for this service (RFC 9728)."""

    resource: str
    authorization_servers: tuple[str, ...]
    bearer_methods_supported: tuple[str, ...] = ("header",)
    scopes_supported: tuple[str, ...]
    resource_name: str = "Rookhold execution gateway"
