"""How a job ended, in one plain sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_KILLED: Final = {
    "cgroup-cpu": "it used up its processor time",
    "supervisor-cpu": "it used up its processor time",
    "rlimit-cpu": "one of its processes used up its processor time",
    "seccomp": "it made a system call that the sandbox forbids",
    "requested_output_unavailable": "an output file it was to write could not be brought back",
    "server_restarted": "the gateway stopped while it ran",
    "minimum_isolation_unsatisfied": "the gateway no longer offers the isolation it asked for",
    "minimum_isolation_observation_mismatch": "the isolation it asked for was not observed",
    "runtime_unavailable": "its interpreter is gone from the gateway",
}


def sentence(
    status: str,
    exit_code: int | None,
    killed_by: str | None,
    violations: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Say how a job with this outcome ended; `violations` are `{rule, detail}` objects."""
    if status == "succeeded":
        return "the job ended well"
    if status == "timed_out":
        wall = _detail(violations, "wall_clock_exceeded", "wall_seconds")
        return f"stopped: it ran longer than its limit of {wall} s" if wall else "stopped: too long"
    if status == "oom_killed":
        memory = _detail(violations, "memory_cap_exceeded", "mem_mb")
        return f"stopped: it wanted more memory than {memory} MiB" if memory else "out of memory"
    if status == "cancelled":
        return "cancelled" + (" before it started" if "before" in (killed_by or "") else "")
    if killed_by is not None and killed_by.startswith("signal-"):
        return f"the job died of signal {killed_by.removeprefix('signal-')}"
    if killed_by is not None:
        return f"stopped: {_KILLED.get(killed_by, killed_by)}"
    if status == "failed" and exit_code is not None:
        return f"the job ended with exit code {exit_code}"
    rules = ", ".join(str(item.get("rule")) for item in violations)
    return f"the gateway could not run the job ({rules})" if rules else f"the job ended: {status}"


def _detail(violations: Sequence[Mapping[str, Any]], rule: str, member: str) -> int | None:
    for item in violations:
        detail = item.get("detail")
        if item.get("rule") == rule and isinstance(detail, dict):
            value = detail.get(member)
            return value if isinstance(value, int) else None
    return None
