"""What a gateway says about itself, as frozen values: posture, limits, identity, readiness."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._members import Members


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """The configured posture. It is no evidence: what a job really had is in its receipt."""

    backend: str
    isolation_class: str
    isolated: bool
    private_rootfs: bool
    seccomp: bool
    networking: str
    controls: tuple[str, ...]
    limit_enforcement: Mapping[str, Any]

    @staticmethod
    def read(of: Members) -> "Execution":
        return Execution(
            backend=of.text("backend"),
            isolation_class=of.text("isolation_class"),
            isolated=of.flag("isolated"),
            private_rootfs=of.flag("private_rootfs"),
            seccomp=of.flag("seccomp"),
            networking=of.text("networking"),
            controls=of.texts("controls"),
            limit_enforcement=of.mapping("limit_enforcement"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What jobs this gateway takes, and whether it signs their evidence."""

    version: str
    languages: tuple[str, ...]
    execution: Execution
    limits: Mapping[str, Any]
    features: Mapping[str, Any]
    signs: bool
    key_id: str | None
    runtime_packs: tuple[str, ...]
    raw: Mapping[str, Any] = field(repr=False)

    @staticmethod
    def read(value: object) -> "Capabilities":
        of = Members(value)
        signing = of.within("attestations")
        return Capabilities(
            version=of.text("version"),
            languages=of.texts("languages"),
            execution=Execution.read(of.within("execution")),
            limits=of.mapping("limits"),
            features=of.mapping("features"),
            signs=signing.flag("enabled"),
            key_id=signing.maybe_text("key_id"),
            runtime_packs=of.texts("runtime_packs"),
            raw=of.raw,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """How the gateway is doing; the scheduler's queue and running counts are the tenant's own."""

    version: str
    sandbox: str
    environment: str
    uptime_seconds: int
    execution: Execution
    scheduler: Mapping[str, Any]
    storage_ready: bool
    raw: Mapping[str, Any] = field(repr=False)

    @staticmethod
    def read(value: object) -> "Status":
        of = Members(value)
        return Status(
            version=of.text("version"),
            sandbox=of.text("sandbox"),
            environment=of.text("environment"),
            uptime_seconds=of.integer("uptime_seconds"),
            execution=Execution.read(of.within("execution")),
            scheduler=of.mapping("scheduler"),
            storage_ready=of.flag("storage_ready"),
            raw=of.raw,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WhoAmI:
    """Whom the gateway takes this client's key for."""

    tenant: str
    principal_id: str
    credential_id: str | None
    auth_method: str
    scopes: tuple[str, ...]
    expires_at_ms: int | None

    @staticmethod
    def read(value: object) -> "WhoAmI":
        of = Members(value)
        return WhoAmI(
            tenant=of.text("tenant"),
            principal_id=of.text("principal_id"),
            credential_id=of.maybe_text("credential_id"),
            auth_method=of.text("auth_method"),
            scopes=of.texts("scopes"),
            expires_at_ms=of.maybe_integer("expires_at_ms"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    """Whether the gateway takes work now; `code` says why not."""

    ready: bool
    code: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """The key the gateway signs with now. Fetched from the signer, it is no trust anchor."""

    algorithm: str
    key_id: str
    pem: str
    trust_notice: str

    @staticmethod
    def read(value: object) -> "SigningKey":
        of = Members(value)
        return SigningKey(
            algorithm=of.text("algorithm"),
            key_id=of.text("key_id"),
            pem=of.text("public_key_pem"),
            trust_notice=of.text("trust_notice"),
        )
