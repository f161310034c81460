"""From the facts that a supervisor reports to the status and cause that a receipt states."""

from __future__ import annotations

import os
from signal import SIGXCPU
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from rookhold_exec.executor import KillReason, ResourceUsage, Violation
from rookhold_exec.launcher.protocol import CPU_GROUP, CPU_SUM, KILLED, WALL
from rookhold_types.limits import USAGE_SAMPLES_MAX
from rookhold_types.states import JobStatus, KilledBy, signal_name
from rookhold_types.violations import ExecutorFault, Rule

if TYPE_CHECKING:
    from rookhold_types.limits import Limits


class Outcome(Struct, frozen=True):
    """How a job ended."""

    status: JobStatus
    exit_code: int | None
    killed_by: str | None
    violations: tuple[Violation, ...] = ()


class Facts(Struct, frozen=True, kw_only=True):
    """What the supervisor saw; `status` is a wait status, or -1 if the payload did not end itself.

    Checked on arrival like anything from a sandbox: the supervisor is ours, but it shares a kernel
    with the job.
    """

    cause: str
    status: int
    wall_ms: int
    cpu_usec: int
    cpu_from_group: int
    payload_cpu_usec: int
    memory_peak: int
    oom_kills: int
    pids_refused: int
    samples: list[int]

    def usage(self) -> ResourceUsage:
        flat = self.samples
        samples = tuple(zip(flat[0::3], flat[1::3], flat[2::3], strict=False))[:USAGE_SAMPLES_MAX]
        return ResourceUsage(
            wall_time_ms=self.wall_ms,
            cpu_time_usec=self.cpu_usec,
            memory_peak_bytes=self.memory_peak if self.memory_peak >= 0 else None,
            samples=samples if self.memory_peak >= 0 else None,
        )


def judge(facts: Facts, limits: Limits, reason: KillReason | None) -> Outcome:
    """Name the one cause. A limit is named by its own counter, never guessed from a signal.

    Reaching the process limit ends no job: a fork fails, and the job goes on as it can. So it is
    told before the cause, and changes nothing of it.
    """
    ended = _cause(facts, limits, reason)
    if facts.pids_refused > 0:
        reached = Violation(Rule.PROCESS_LIMIT_REACHED, {"max_pids": limits.max_pids})
        return structs.replace(ended, violations=(reached, *ended.violations))
    return ended


def _cause(facts: Facts, limits: Limits, reason: KillReason | None) -> Outcome:
    if facts.oom_kills > 0:
        return _limit(JobStatus.OOM_KILLED, KilledBy.CGROUP_OOM, *_memory(limits))
    if facts.cause == WALL:
        return _limit(JobStatus.TIMED_OUT, KilledBy.WALL_CLOCK, *_wall(limits))
    if facts.cause == KILLED:
        return cancelled() if reason is not None else lost()
    if facts.cause == CPU_GROUP:
        return _limit(JobStatus.FAILED, KilledBy.CGROUP_CPU, *_cpu(limits))
    if facts.cause == CPU_SUM:
        return _limit(JobStatus.FAILED, KilledBy.SUPERVISOR_CPU, *_cpu(limits))
    return _by_itself(facts, limits)


def _by_itself(facts: Facts, limits: Limits) -> Outcome:
    allowed = limits.cpu_seconds * 1_000_000
    if os.WIFSIGNALED(facts.status):
        number = os.WTERMSIG(facts.status)
        if facts.payload_cpu_usec >= allowed and number in {SIGXCPU, 9}:
            return _limit(JobStatus.FAILED, KilledBy.RLIMIT_CPU, *_cpu(limits))
        if facts.cpu_usec >= allowed:
            return _limit(JobStatus.FAILED, _cpu_counter(facts), *_cpu(limits))
        return Outcome(JobStatus.FAILED, None, signal_name(number))
    code = os.WEXITSTATUS(facts.status)
    if code == 0:
        return Outcome(JobStatus.SUCCEEDED, 0, None)
    if facts.cpu_usec >= allowed:
        # One of its processes met its rlimit, and the job ended over that.
        rule, detail = _cpu(limits)
        killer = _cpu_counter(facts)
        return Outcome(JobStatus.FAILED, code, killer, (Violation(rule, detail),))
    return Outcome(JobStatus.FAILED, code, None)


def _cpu_counter(facts: Facts) -> KilledBy:
    return KilledBy.CGROUP_CPU if facts.cpu_from_group else KilledBy.SUPERVISOR_CPU


def cancelled() -> Outcome:
    return _limit(JobStatus.CANCELLED, KilledBy.CANCELLED, Rule.JOB_CANCELLED, {})


def timed_out(limits: Limits) -> Outcome:
    return _limit(JobStatus.TIMED_OUT, KilledBy.WALL_CLOCK, *_wall(limits))


def lost() -> Outcome:
    """Return the outcome of a job whose supervisor is gone without a report."""
    violation = Violation(Rule.EXECUTOR_ERROR, {"code": ExecutorFault.FAILURE})
    return Outcome(JobStatus.ERROR, None, None, (violation,))


def _limit(status: JobStatus, killer: str, rule: str, detail: dict[str, Any]) -> Outcome:
    return Outcome(status, None, killer, (Violation(rule, detail),))


def _wall(limits: Limits) -> tuple[str, dict[str, Any]]:
    return Rule.WALL_CLOCK_EXCEEDED, {"wall_seconds": limits.wall_seconds}


def _cpu(limits: Limits) -> tuple[str, dict[str, Any]]:
    return Rule.CPU_LIMIT_EXCEEDED, {"cpu_seconds": limits.cpu_seconds}


def _memory(limits: Limits) -> tuple[str, dict[str, Any]]:
    return Rule.MEMORY_CAP_EXCEEDED, {"mem_mb": limits.mem_mb}
