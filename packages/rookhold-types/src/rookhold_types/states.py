"""The lifecycle of a job: statuses, allowed moves, and why a job ended as it did."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import ClassVar, Final

from rookhold_types.errors import RookholdError


class JobStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    OOM_KILLED = "oom_killed"
    CANCELLED = "cancelled"
    ERROR = "error"


_S = JobStatus

TRANSITIONS: Final[Mapping[JobStatus, frozenset[JobStatus]]] = MappingProxyType(
    {
        _S.QUEUED: frozenset({_S.RUNNING, _S.CANCELLED, _S.ERROR}),
        _S.RUNNING: frozenset(
            {_S.SUCCEEDED, _S.FAILED, _S.TIMED_OUT, _S.OOM_KILLED, _S.CANCELLED, _S.ERROR}
        ),
    }
)
TERMINAL: Final = frozenset(JobStatus) - TRANSITIONS.keys()


class IllegalTransitionError(RookholdError):
    """A job was asked to move to a status that its present one does not lead to."""

    code: ClassVar[str] = "illegal_transition"


def can_move(before: JobStatus, after: JobStatus) -> bool:
    """Whether a job may go straight from `before` to `after`; a terminal status is final."""
    return after in TRANSITIONS.get(before, frozenset())


def move(before: JobStatus, after: JobStatus) -> JobStatus:
    """Return `after`, or raise IllegalTransitionError if a job cannot go there from `before`."""
    if not can_move(before, after):
        raise IllegalTransitionError(
            f"a job does not go from {before} to {after}", before=str(before), after=str(after)
        )
    return after


class KilledBy(StrEnum):
    """Why a job ended other than by its own exit. Signals have names made by `signal_name`."""

    WALL_CLOCK = "wall-clock"
    CGROUP_OOM = "cgroup-oom"
    CGROUP_CPU = "cgroup-cpu"
    SUPERVISOR_CPU = "supervisor-cpu"
    RLIMIT_CPU = "rlimit-cpu"
    SECCOMP = "seccomp"
    CANCELLED = "cancelled"
    CANCELLED_BEFORE_START = "cancelled_before_start"
    CANCELLED_BEFORE_EXECUTION = "cancelled_before_execution"
    SERVER_SHUTDOWN_BEFORE_EXECUTION = "server_shutdown_before_execution"
    CANCELLED_BEFORE_LAUNCH = "cancelled_before_launch"
    SERVER_SHUTDOWN_BEFORE_LAUNCH = "server_shutdown_before_launch"
    ARTIFACT_SETUP_FAILED = "artifact_setup_failed"
    REQUESTED_OUTPUT_UNAVAILABLE = "requested_output_unavailable"
    MINIMUM_ISOLATION_UNSATISFIED = "minimum_isolation_unsatisfied"
    MINIMUM_ISOLATION_OBSERVATION_MISMATCH = "minimum_isolation_observation_mismatch"
    RUNTIME_UNAVAILABLE = "runtime_unavailable"
    TENANT_LEASE_MISMATCH = "tenant_lease_mismatch"
    INVALID_STORED_SPEC = "invalid_stored_spec"
    MISSING_MEMORY_LEASE = "missing_memory_lease"
    MEMORY_LEASE_READ_FAILED = "memory_lease_read_failed"
    MEMORY_LEASE_MISMATCH = "memory_lease_mismatch"
    EVENT_PRODUCER_STOPPED = "event_producer_stopped"
    EVENT_PUMP_FAILED = "event_pump_failed"
    SERVER_RESTARTED = "server_restarted"


_K = KilledBy

KILLED_BY_STATUS: Final[Mapping[KilledBy, JobStatus]] = MappingProxyType(
    {
        _K.WALL_CLOCK: _S.TIMED_OUT,
        _K.CGROUP_OOM: _S.OOM_KILLED,
        **dict.fromkeys((_K.CGROUP_CPU, _K.SUPERVISOR_CPU, _K.RLIMIT_CPU, _K.SECCOMP), _S.FAILED),
        **dict.fromkeys(
            (
                _K.CANCELLED,
                _K.CANCELLED_BEFORE_START,
                _K.CANCELLED_BEFORE_EXECUTION,
                _K.SERVER_SHUTDOWN_BEFORE_EXECUTION,
                _K.CANCELLED_BEFORE_LAUNCH,
                _K.SERVER_SHUTDOWN_BEFORE_LAUNCH,
            ),
            _S.CANCELLED,
        ),
        **dict.fromkeys(
            (
                _K.ARTIFACT_SETUP_FAILED,
                _K.REQUESTED_OUTPUT_UNAVAILABLE,
                _K.MINIMUM_ISOLATION_UNSATISFIED,
                _K.MINIMUM_ISOLATION_OBSERVATION_MISMATCH,
                _K.RUNTIME_UNAVAILABLE,
                _K.TENANT_LEASE_MISMATCH,
                _K.INVALID_STORED_SPEC,
                _K.MISSING_MEMORY_LEASE,
                _K.MEMORY_LEASE_READ_FAILED,
                _K.MEMORY_LEASE_MISMATCH,
                _K.EVENT_PRODUCER_STOPPED,
                _K.EVENT_PUMP_FAILED,
                _K.SERVER_RESTARTED,
            ),
            _S.ERROR,
        ),
    }
)


def signal_name(number: int) -> str:
    """Return the `killed_by` of a job that a signal ended: `signal-9` for SIGKILL."""
    return f"signal-{number}"
