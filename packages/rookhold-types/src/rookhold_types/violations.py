"""Violation rules with the members of their details: coarse on purpose, no host detail in them."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Rule(StrEnum):
    JOB_CANCELLED = "job_cancelled"
    WALL_CLOCK_EXCEEDED = "wall_clock_exceeded"
    CPU_LIMIT_EXCEEDED = "cpu_limit_exceeded"
    MEMORY_CAP_EXCEEDED = "memory_cap_exceeded"
    PROCESS_LIMIT_REACHED = "process_limit_reached"
    SECCOMP_VIOLATION = "seccomp_violation"
    SANDBOX_BOOTSTRAP_FAILED = "sandbox_bootstrap_failed"
    EXECUTOR_ERROR = "executor_error"
    ARTIFACT_SETUP_FAILED = "artifact_setup_failed"
    ARTIFACT_COLLECTION_FAILED = "artifact_collection_failed"
    MINIMUM_ISOLATION_OBSERVATION_MISMATCH = "minimum_isolation_observation_mismatch"


RULE_DETAIL: Final[Mapping[Rule, tuple[str, ...]]] = MappingProxyType(
    {
        Rule.JOB_CANCELLED: (),
        Rule.WALL_CLOCK_EXCEEDED: ("wall_seconds",),
        Rule.CPU_LIMIT_EXCEEDED: ("cpu_seconds",),
        Rule.MEMORY_CAP_EXCEEDED: ("mem_mb",),
        Rule.PROCESS_LIMIT_REACHED: ("max_pids",),
        Rule.SECCOMP_VIOLATION: ("signal",),
        Rule.SANDBOX_BOOTSTRAP_FAILED: ("stage",),
        Rule.EXECUTOR_ERROR: ("code",),
        Rule.ARTIFACT_SETUP_FAILED: ("code",),
        Rule.ARTIFACT_COLLECTION_FAILED: ("code", "outputs"),
        Rule.MINIMUM_ISOLATION_OBSERVATION_MISMATCH: (
            "minimum_isolation",
            "observed_isolation",
            "bootstrap_ready",
        ),
    }
)


class ExecutorFault(StrEnum):
    """The `code` in the detail of `executor_error` and `artifact_setup_failed`."""

    UNAVAILABLE = "executor_unavailable"  # not found, permission denied
    FAILURE = "executor_failure"


class OutputReason(StrEnum):
    """Why a requested output was not collected."""

    MISSING = "missing"
    NOT_REGULAR = "not_regular"
    LINK = "link"
    UNREADABLE = "unreadable"
    TOO_LARGE = "too_large"
    TOTAL_TOO_LARGE = "total_too_large"
    CHANGED = "changed"
