"""Whether what was observed about a run agrees with what was required of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rookhold_types.isolation import IsolationClass, satisfies
from rookhold_types.states import JobStatus
from rookhold_types.violations import Rule

if TYPE_CHECKING:
    from rookhold_exec.executor import Provenance

# An executor that says a job ended in one of these ways says that the job was running.
_RAN = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.TIMED_OUT, JobStatus.OOM_KILLED})


def contradicts(status: JobStatus, provenance: Provenance, minimum: IsolationClass) -> bool:
    """Whether the observation refutes the run: too weak, or an outcome of a job never ready.

    A job that was cancelled, or that the executor failed, before it was ready is neither.
    """
    if provenance.bootstrap_ready:
        return not satisfies(provenance.isolation_class, minimum)
    return status in _RAN


def mismatch(provenance: Provenance, minimum: IsolationClass) -> dict[str, Any]:
    """The violation that tells of a contradiction."""
    return {
        "rule": Rule.MINIMUM_ISOLATION_OBSERVATION_MISMATCH,
        "detail": {
            "minimum_isolation": str(minimum),
            "observed_isolation": str(provenance.isolation_class),
            "bootstrap_ready": provenance.bootstrap_ready,
        },
    }
