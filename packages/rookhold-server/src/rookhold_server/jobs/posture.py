"""What this server says it can do: the configured posture and compiled ceilings, never evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookhold_attestation import profile
from rookhold_types.isolation import IsolationClass
from rookhold_types.runtimes import LANGUAGES, PACKS
from rookhold_types.service import (
    AttestationCapabilities,
    Capabilities,
    CapabilityLimits,
    ExecutionPosture,
    Features,
)

if TYPE_CHECKING:
    from rookhold_attestation import PrivateKey
    from rookhold_exec.executor import Posture
    from rookhold_server.jobs.values import EngineSettings

PUBLIC_KEY_URL = "/v1/attestation/public-key"


def execution_posture(posture: Posture) -> ExecutionPosture:
    return ExecutionPosture(
        **{name: getattr(posture, name) for name in ExecutionPosture.__struct_fields__}
    )


def offered_packs(posture: Posture) -> tuple[str, ...]:
    """The packs of its root file system, by language; none without a class, whoever claims some."""
    if posture.isolation_class is IsolationClass.NONE:
        return ()
    return tuple(
        PACKS[name]
        for name in LANGUAGES
        if name in posture.languages and PACKS[name] in posture.runtime_packs
    )


def capabilities(
    settings: EngineSettings, posture: Posture, key: PrivateKey | None
) -> Capabilities:
    return Capabilities(
        version=settings.version,
        languages=tuple(name for name in LANGUAGES if name in posture.languages),
        execution=execution_posture(posture),
        limits=CapabilityLimits.compiled(
            mem_mb_max=settings.max_job_mem_mb, concurrent_mem_mb_max=settings.memory_budget_mb
        ),
        features=Features(
            result_wait=True,
            cancellation=True,
            event_cursors=True,
            stream_tickets=True,
            receipts=True,
            signed_attestations=key is not None,
            attestation_wait=key is not None,
        ),
        attestations=_attestations(key),
        runtime_packs=offered_packs(posture),
    )


def _attestations(key: PrivateKey | None) -> AttestationCapabilities:
    if key is None:
        return AttestationCapabilities()
    return AttestationCapabilities(
        enabled=True,
        algorithm=profile.ALGORITHM,
        envelope_format=profile.ENVELOPE_FORMAT,
        key_id=key.key_id,
        public_key_url=PUBLIC_KEY_URL,
    )
