from __future__ import annotations

import pytest

from rookhold import errors
from rookhold_cli.exits import Exit, of_error, of_job


@pytest.mark.parametrize(
    ("status", "exit_code", "killed_by", "exit_status"),
    [
        ("succeeded", 0, None, 0),
        ("failed", 3, None, 3),
        ("failed", 255, None, 255),
        ("failed", None, "signal-9", 137),
        ("failed", None, "signal-15", 143),
        ("failed", None, "signal-x", 125),
        ("failed", None, "cgroup-cpu", 125),
        ("failed", None, "supervisor-cpu", 125),
        ("failed", None, "rlimit-cpu", 125),
        ("failed", None, "seccomp", 125),
        ("failed", None, None, 125),
        ("timed_out", None, "wall-clock", 124),
        ("oom_killed", None, "cgroup-oom", 137),
        ("cancelled", None, "cancelled", 125),
        ("error", 0, "requested_output_unavailable", 125),
        ("error", None, "server_restarted", 125),
        ("error", None, None, 125),
        ("from_the_future", 0, "something", 125),
    ],
)
def test_a_job_ends_the_command_as_the_table_says(
    status: str, exit_code: int | None, killed_by: str | None, exit_status: int
) -> None:
    assert of_job(status, exit_code, killed_by) == exit_status


def refusal(kind: type[errors.ApiError], status: int) -> errors.ApiError:
    return kind("no", code="some_code", status=status)


@pytest.mark.parametrize(
    ("error", "exit_status"),
    [
        (errors.UnreachableError("x"), 69),
        (errors.TimedOutError("x"), 69),
        (errors.ProtocolError("x"), 69),
        (errors.RedirectError("x"), 69),
        (errors.WaitExpiredError("x"), 69),
        (errors.IntegrityError("x"), 65),
        (errors.ConfigurationError("x"), 64),
        (refusal(errors.InvalidRequestError, 400), 77),
        (refusal(errors.UnauthorizedError, 401), 77),
        (refusal(errors.NotFoundError, 404), 77),
        (refusal(errors.PolicyError, 422), 77),
        (refusal(errors.CapacityError, 429), 77),
        (refusal(errors.ServerError, 500), 69),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_ends_the_command_as_the_table_says(
    error: errors.RookholdError, exit_status: int
) -> None:
    assert of_error(error) == exit_status


def test_no_two_reasons_share_an_exit_status() -> None:
    assert len({int(exit_status) for exit_status in Exit}) == len(Exit.__members__)
