"""What a queued job is told about its wait."""

import pytest

from rookhold_server.jobs.estimate import REMEMBERED_RUNS, WaitEstimate


def after(*runs_ms):
    estimate = WaitEstimate()
    for run_ms in runs_ms:
        estimate.observe(run_ms)
    return estimate


def test_before_the_first_run_nothing_is_guessed():
    assert WaitEstimate().wait_ms(1, slots=2) is None


@pytest.mark.parametrize(
    ("position", "slots", "wait_ms"),
    [(1, 1, 100), (3, 1, 300), (4, 2, 200), (1, 4, 25), (1, 0.5, 200), (2, 0.25, 800)],
)
def test_it_is_the_mean_run_for_each_turn_that_comes_before(position, slots, wait_ms):
    assert after(50, 100, 150).wait_ms(position, slots=slots) == wait_ms


def test_only_what_ran_lately_counts():
    estimate = after(*[60_000] * 5, *[10] * REMEMBERED_RUNS)
    assert estimate.wait_ms(1, slots=1) == 10
