from __future__ import annotations

import pytest

from rookhold_cli.ending import sentence

WALL = [{"rule": "wall_clock_exceeded", "detail": {"wall_seconds": 2}}]
MEMORY = [{"rule": "memory_cap_exceeded", "detail": {"mem_mb": 64}}]
FAULT = [{"rule": "executor_error", "detail": {"code": "executor_failure"}}]


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (("succeeded", 0, None), "ended well"),
        (("failed", 3, None), "exit code 3"),
        (("failed", None, "signal-9"), "signal 9"),
        (("failed", None, "seccomp"), "system call"),
        (("failed", None, "rlimit-cpu"), "processor time"),
        (("failed", None, "from-the-future"), "from-the-future"),
        (("timed_out", None, "wall-clock", WALL), "2 s"),
        (("timed_out", None, "wall-clock"), "too long"),
        (("oom_killed", None, "cgroup-oom", MEMORY), "64 MiB"),
        (("cancelled", None, "cancelled"), "cancelled"),
        (("cancelled", None, "cancelled_before_start"), "before it started"),
        (("error", 0, "requested_output_unavailable"), "output file"),
        (("error", None, None, FAULT), "executor_error"),
        (("error", None, None), "error"),
        (("from_the_future", None, None), "from_the_future"),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else value,
)
def test_an_outcome_is_said_in_plain_words(outcome: tuple, said: str) -> None:  # type: ignore[type-arg]
    assert said in sentence(*outcome)
