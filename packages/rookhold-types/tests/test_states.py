"""The lifecycle: every allowed move, no other, and every reason under its status."""

import pytest

from rookhold_types import (
    KILLED_BY_STATUS,
    TERMINAL,
    TRANSITIONS,
    IllegalTransitionError,
    JobStatus,
    KilledBy,
    can_move,
    move,
    signal_name,
)

ENDS = {"succeeded", "failed", "timed_out", "oom_killed", "cancelled", "error"}
ALLOWED = {("queued", "running"), ("queued", "cancelled"), ("queued", "error")} | {
    ("running", end) for end in ENDS
}
PAIRS = [(before, after) for before in JobStatus for after in JobStatus]


@pytest.mark.parametrize(("before", "after"), [p for p in PAIRS if p in ALLOWED])
def test_an_allowed_move_is_made(before: JobStatus, after: JobStatus) -> None:
    assert can_move(before, after)
    assert move(before, after) is after


@pytest.mark.parametrize(("before", "after"), [p for p in PAIRS if p not in ALLOWED])
def test_any_other_move_is_refused(before: JobStatus, after: JobStatus) -> None:
    assert not can_move(before, after)
    with pytest.raises(IllegalTransitionError) as caught:
        move(before, after)
    assert caught.value.code == "illegal_transition"
    assert caught.value.detail == {"before": before.value, "after": after.value}


def test_terminal_is_final_and_everything_else_can_end() -> None:
    assert TERMINAL == ENDS
    assert TERMINAL.isdisjoint(TRANSITIONS)
    assert all(after & TERMINAL for after in TRANSITIONS.values())


def test_every_status_is_reached_from_queued() -> None:
    reached, pending = {JobStatus.QUEUED}, [JobStatus.QUEUED]
    while pending:
        for after in TRANSITIONS.get(pending.pop(), frozenset()) - reached:
            reached.add(after)
            pending.append(after)
    assert reached == set(JobStatus)


def test_every_reason_belongs_to_a_terminal_status() -> None:
    assert set(KILLED_BY_STATUS) == set(KilledBy)
    assert set(KILLED_BY_STATUS.values()) <= TERMINAL


def test_no_reason_explains_a_success() -> None:
    assert JobStatus.SUCCEEDED not in KILLED_BY_STATUS.values()


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("wall-clock", "timed_out"),
        ("cgroup-oom", "oom_killed"),
        ("cgroup-cpu", "failed"),
        ("supervisor-cpu", "failed"),
        ("rlimit-cpu", "failed"),
        ("seccomp", "failed"),
        ("cancelled", "cancelled"),
        ("server_shutdown_before_launch", "cancelled"),
        ("requested_output_unavailable", "error"),
        ("minimum_isolation_observation_mismatch", "error"),
        ("event_pump_failed", "error"),
        ("server_restarted", "error"),
    ],
)
def test_a_reason_gives_its_status(reason: str, status: str) -> None:
    assert KILLED_BY_STATUS[KilledBy(reason)] == status


def test_a_signal_is_named_by_its_number_and_is_no_fixed_reason() -> None:
    assert signal_name(9) == "signal-9"
    assert signal_name(31) not in set(KilledBy)
