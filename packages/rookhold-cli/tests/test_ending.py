from __future__ import annotations

import pytest

from rookhold_cli.ending import sentence

LIMITS = {"wall_seconds": 2, "mem_mb": 64}


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (("succeeded", 0, None), "ended well"),
        (("failed", 3, None), "exit code 3"),
        (("failed", None, "signal-9"), "signal 9"),
        (("failed", None, "seccomp"), "system call"),
        (("failed", None, "rlimit-cpu"), "processor time"),
        (("failed", None, "from-the-future"), "from-the-future"),
        (("timed_out", None, "wall-clock"), "2 s"),
        (("oom_killed", None, "cgroup-oom"), "64 MiB"),
        (("cancelled", None, "cancelled"), "cancelled"),
        (("cancelled", None, "cancelled_before_start"), "before it started"),
        (("error", 0, "requested_output_unavailable"), "output file"),
        (("error", None, None), "executor_error"),
    ],
    ids=str,
)
def test_an_outcome_is_said_in_plain_words(
    outcome: tuple[str, int | None, str | None], said: str
) -> None:
    assert said in sentence(*outcome, limits=LIMITS, rules=["executor_error"])


@pytest.mark.parametrize("outcome", [("succeeded", 0, None), ("failed", 254, None)], ids=str)
def test_a_process_limit_that_was_reached_is_said_beside_the_end(
    outcome: tuple[str, int | None, str | None],
) -> None:
    plain = sentence(*outcome, limits={"max_pids": 32})
    said = sentence(*outcome, limits={"max_pids": 32}, rules=["process_limit_reached"])
    assert said == f"{plain}; it reached its limit of 32 processes"


@pytest.mark.parametrize(
    "killed_by",
    [
        "minimum_isolation_unsatisfied",
        "runtime_unavailable",
        "artifact_setup_failed",
        "invalid_stored_spec",
        "tenant_lease_mismatch",
        "missing_memory_lease",
        "memory_lease_read_failed",
        "memory_lease_mismatch",
    ],
)
def test_a_job_that_never_ran_is_not_called_stopped(killed_by: str) -> None:
    said = sentence("error", None, killed_by)
    assert said.startswith("never started: ")
    assert killed_by not in said, "in words, not in codes"


def test_a_job_that_ended_by_itself_is_not_called_stopped() -> None:
    for killed_by in ("requested_output_unavailable", "minimum_isolation_observation_mismatch"):
        assert "stopped" not in sentence("error", 0, killed_by)


@pytest.mark.parametrize(
    ("status", "said"),
    [("timed_out", "too long"), ("oom_killed", "memory"), ("error", "error"), ("new", "new")],
)
def test_little_is_said_where_little_is_known(status: str, said: str) -> None:
    assert said in sentence(status, None, None)
