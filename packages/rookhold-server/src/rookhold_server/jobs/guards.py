"""What must still hold when a worker takes a job; whatever does not ends it unrun."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from rookhold_types.isolation import satisfies
from rookhold_types.jobs import JobSpec
from rookhold_types.states import KilledBy

if TYPE_CHECKING:
    from rookhold_exec.executor import Posture
    from rookhold_server.jobs.fairqueue import Pending
    from rookhold_store.rows import JobRow


class Verdict(Struct, frozen=True):
    """The decoded spec, and the guard that refused it, if one did."""

    spec: JobSpec | None
    refused: KilledBy | None = None


def judge(row: JobRow, pending: Pending, posture: Posture) -> Verdict:
    """Apply the guards in their order."""
    if row.tenant != pending.tenant:
        return Verdict(None, KilledBy.TENANT_LEASE_MISMATCH)
    try:
        spec = msgspec.json.decode(row.spec_json, type=JobSpec)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Verdict(None, KilledBy.INVALID_STORED_SPEC)
    return Verdict(spec, _memory_guard(row, pending) or _posture_guard(spec, posture))


def _memory_guard(row: JobRow, pending: Pending) -> KilledBy | None:
    admitted: object = row.admitted_mem_mb
    if admitted is None:
        return KilledBy.MISSING_MEMORY_LEASE
    if type(admitted) is not int:
        return KilledBy.MEMORY_LEASE_READ_FAILED
    return None if admitted == pending.admitted_mem_mb else KilledBy.MEMORY_LEASE_MISMATCH


def _posture_guard(spec: JobSpec, posture: Posture) -> KilledBy | None:
    if not satisfies(posture.isolation_class, spec.requirements.minimum_isolation):
        return KilledBy.MINIMUM_ISOLATION_UNSATISFIED
    return None if spec.language in posture.languages else KilledBy.RUNTIME_UNAVAILABLE
