import pytest

from rookhold_exec.executor import KillReason, Violation
from rookhold_exec.outcome import Facts, judge
from rookhold_types.limits import Limits
from rookhold_types.states import JobStatus

LIMITS = Limits(cpu_seconds=2, wall_seconds=5, mem_mb=64)


def facts(**changed: object) -> Facts:
    whole = {
        "cause": "",
        "status": 0,
        "wall_ms": 10,
        "cpu_usec": 1000,
        "cpu_from_group": 1,
        "payload_cpu_usec": 900,
        "memory_peak": 4096,
        "oom_kills": 0,
        "pids_refused": 0,
        "samples": [],
    }
    return Facts(**(whole | changed))


CASES = [
    ({}, "succeeded", 0, None, None),
    ({"status": 3 << 8}, "failed", 3, None, None),
    ({"status": 15}, "failed", None, "signal-15", None),
    ({"status": 9}, "failed", None, "signal-9", None),
    ({"status": 24}, "failed", None, "signal-24", None),
    ({"status": 31}, "failed", None, "signal-31", None),
    ({"status": 9, "oom_kills": 1}, "oom_killed", None, "cgroup-oom", "memory_cap_exceeded"),
    ({"status": 137 << 8, "oom_kills": 1}, "oom_killed", None, "cgroup-oom", "memory_cap_exceeded"),
    ({"status": -1, "cause": "wall"}, "timed_out", None, "wall-clock", "wall_clock_exceeded"),
    ({"status": -1, "cause": "cpu-group"}, "failed", None, "cgroup-cpu", "cpu_limit_exceeded"),
    ({"status": -1, "cause": "cpu-sum"}, "failed", None, "supervisor-cpu", "cpu_limit_exceeded"),
    (
        {"status": 24, "payload_cpu_usec": 3_000_000, "cpu_usec": 3_000_000},
        "failed",
        None,
        "rlimit-cpu",
        "cpu_limit_exceeded",
    ),
    (
        {"status": 152 << 8, "cpu_usec": 2_000_001},
        "failed",
        152,
        "cgroup-cpu",
        "cpu_limit_exceeded",
    ),
    ({"status": 0, "cpu_usec": 2_000_001}, "succeeded", 0, None, None),
    ({"status": -1, "cause": "killed"}, "error", None, None, "executor_error"),
]


@pytest.mark.parametrize(("changed", "status", "code", "killer", "rule"), CASES)
def test_the_cause_is_named_by_what_was_counted(
    changed: dict[str, object],
    status: str,
    code: int | None,
    killer: str | None,
    rule: str | None,
) -> None:
    outcome = judge(facts(**changed), LIMITS, None)
    assert (outcome.status, outcome.exit_code, outcome.killed_by) == (status, code, killer)
    assert [violation.rule for violation in outcome.violations] == ([rule] if rule else [])


@pytest.mark.parametrize("changed", [case[0] for case in CASES])
def test_refused_forks_are_told_first_and_change_nothing_else(changed: dict[str, object]) -> None:
    without = judge(facts(**changed), LIMITS, None)
    told = judge(facts(**changed, pids_refused=3), LIMITS, None)
    reached = Violation("process_limit_reached", {"max_pids": LIMITS.max_pids})
    assert told.violations == (reached, *without.violations)
    assert (told.status, told.exit_code, told.killed_by) == (
        without.status,
        without.exit_code,
        without.killed_by,
    )


def test_a_cancel_is_a_cancel_whatever_its_reason() -> None:
    for reason in KillReason:
        outcome = judge(facts(cause="killed", status=-1), LIMITS, reason)
        assert outcome.status is JobStatus.CANCELLED
        assert outcome.killed_by == "cancelled"
        assert outcome.violations == (Violation("job_cancelled", {}),)


def test_a_job_that_ended_before_the_cancel_arrived_keeps_its_end() -> None:
    outcome = judge(facts(status=0), LIMITS, KillReason.CANCELLED)
    assert outcome.status is JobStatus.SUCCEEDED


def test_what_was_not_measured_is_null() -> None:
    usage = facts(memory_peak=-1, samples=[]).usage()
    assert usage.memory_peak_bytes is None
    assert usage.samples is None
    measured = facts(samples=[100, 5, 4096, 200, 9, 8192]).usage()
    assert measured.samples == ((100, 5, 4096), (200, 9, 8192))
