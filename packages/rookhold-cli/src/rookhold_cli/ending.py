"""How a job ended, in one plain sentence."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rookhold import JobDetail

_KILLED: Final = {
    "cgroup-cpu": "it used up its processor time",
    "supervisor-cpu": "it used up its processor time",
    "rlimit-cpu": "one of its processes used up its processor time",
    "seccomp": "it made a system call that the sandbox forbids",
    "server_restarted": "the gateway stopped while it ran",
    "event_producer_stopped": "the gateway lost what it printed",
    "event_pump_failed": "the gateway could not keep what it printed",
}
_NEVER_STARTED: Final = {
    "minimum_isolation_unsatisfied": "the gateway no longer offers the isolation it asked for",
    "runtime_unavailable": "its interpreter is gone from the gateway",
    "artifact_setup_failed": "its files could not be prepared",
    "invalid_stored_spec": "what the gateway had stored of it is damaged",
    "tenant_lease_mismatch": "the gateway's record of it contradicts itself",
    "missing_memory_lease": "the gateway's record of it contradicts itself",
    "memory_lease_read_failed": "the gateway could not read its record of it",
    "memory_lease_mismatch": "the gateway's record of it contradicts itself",
}
_OF_ITSELF: Final = {
    "requested_output_unavailable": "an output file it was to write could not be brought back",
    "minimum_isolation_observation_mismatch": "the isolation it asked for was not observed",
}


def of(detail: JobDetail, rules: Iterable[str] = ()) -> str:
    """Say how this finished job ended; `rules` names the violations, if they are known."""
    receipt = detail.receipt or {}
    return sentence(
        detail.status,
        detail.exit_code,
        detail.killed_by,
        limits=receipt.get("effective_limits") or {},
        rules=rules,
    )


def remarks(detail: JobDetail, rules: Iterable[str], *, truncated: bool) -> Iterator[str]:
    """Say of this finished job what neither its output nor its exit code can tell."""
    if truncated:
        yield "the job printed more than is kept; the rest was counted and left out"
    if detail.status != "succeeded" and not (detail.exit_code and detail.killed_by is None):
        yield of(detail, rules)


def sentence(
    status: str,
    exit_code: int | None,
    killed_by: str | None,
    *,
    limits: Mapping[str, Any] = MappingProxyType({}),
    rules: Iterable[str] = (),
) -> str:
    """Say how a job with this outcome ended; `limits` are those that were in force."""
    rules = list(rules)
    said = _sentence(status, exit_code, killed_by, limits, rules)
    if "process_limit_reached" in rules:
        count = limits.get("max_pids")
        said += f"; it reached its limit of {count} processes" if count else ""
    return said


def _sentence(
    status: str,
    exit_code: int | None,
    killed_by: str | None,
    limits: Mapping[str, Any],
    rules: list[str],
) -> str:
    if status == "succeeded":
        return "the job ended well"
    if status == "timed_out":
        wall = limits.get("wall_seconds")
        return f"stopped: it ran longer than its limit of {wall} s" if wall else "stopped: too long"
    if status == "oom_killed":
        memory = limits.get("mem_mb")
        return f"stopped: it wanted more memory than {memory} MiB" if memory else "out of memory"
    if status == "cancelled":
        return "cancelled" + (" before it started" if "before" in (killed_by or "") else "")
    if killed_by is not None and killed_by.startswith("signal-"):
        return f"the job died of signal {killed_by.removeprefix('signal-')}"
    if killed_by in _OF_ITSELF:
        return _OF_ITSELF[killed_by]
    if killed_by in _NEVER_STARTED:
        return f"never started: {_NEVER_STARTED[killed_by]}"
    if killed_by is not None:
        return f"stopped: {_KILLED.get(killed_by, killed_by)}"
    if status == "failed" and exit_code is not None:
        return f"the job ended with exit code {exit_code}"
    named = ", ".join(rules)
    return f"the gateway could not run the job ({named})" if named else f"the job ended: {status}"
