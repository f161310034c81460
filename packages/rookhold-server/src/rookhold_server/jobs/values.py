"""The values that cross the engine's seam with the HTTP side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    # A server that does not sign never loads the cryptography, and nothing decodes a SignerConfig.
    from rookhold_attestation.keys import PrivateKey  # noqa: TC004


class EngineSettings(Struct, frozen=True, kw_only=True):
    """Scheduling numbers, already validated by the configuration."""

    version: str
    workers: int
    tenant_concurrency: int
    tenant_weights: Mapping[str, int] = {}
    tenant_queue_capacity: int = 64
    queue_capacity: int = 1024
    max_job_mem_mb: int = 1024
    memory_budget_mb: int = 4096
    worker_grace_seconds: float = 30.0
    recovery_grace_seconds: float = 1.0
    retention_hours: int = 0  # 0 keeps terminal jobs for ever
    sweep_interval_seconds: float = 3600.0


class SignerConfig(Struct, frozen=True, kw_only=True):
    """The one active signing key of this process."""

    key: PrivateKey


class Submitted(Struct, frozen=True, kw_only=True):
    """An accepted submission; `replayed` when an earlier request with the key made the job."""

    job_id: str
    replayed: bool


class StoredAttestation(Struct, frozen=True, kw_only=True):
    """Exactly the persisted bytes of an attestation, with their digests."""

    envelope: bytes
    envelope_sha256: str
    result_artifact: bytes
    result_sha256: str
    result_media_type: str
    key_id: str


class TenantStatus(Struct, frozen=True, kw_only=True):
    """What one tenant has waiting and running now; never another tenant's."""

    queue_depth: int
    running: int
