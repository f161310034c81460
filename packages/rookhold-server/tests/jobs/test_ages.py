"""No job seems older than it is, whichever way the clock was set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rookhold_server.jobs.ages import OFFSETS_MAX, WatchedClock

HOUR = 3_600_000
AGE = 168 * HOUR


class Times:
    """A wall clock that anybody sets, and a steady one that nobody does."""

    def __init__(self) -> None:
        self.steady_ms = 5 * HOUR
        self.ahead_ms = 1_790_000_000_000
        self.clock = WatchedClock(self.wall, lambda: self.steady_ms)

    def wall(self) -> int:
        return self.steady_ms + self.ahead_ms

    def judged(self, age_ms: int = AGE) -> int:
        """How far behind the wall clock the time is that ages are judged by."""
        return self.wall() - self.clock.cautious_ms(age_ms)


def test_a_clock_that_nobody_sets_is_believed() -> None:
    times = Times()
    for _ in range(5):
        assert times.judged() == 0
        assert times.clock() == times.wall()
        times.steady_ms += HOUR


def test_an_hour_ahead_and_back_makes_nothing_older() -> None:
    times = Times()
    times.steady_ms += HOUR
    times.ahead_ms += HOUR
    assert times.judged() == HOUR
    times.steady_ms += HOUR
    assert times.clock() == times.wall(), "a job is stamped with the wall clock's time"
    times.ahead_ms -= HOUR
    assert times.judged() == 0


def test_a_job_that_ended_while_the_clock_was_behind_is_not_an_hour_older_afterwards() -> None:
    times = Times()
    times.ahead_ms -= HOUR
    finished_at_ms, at = times.clock(), times.steady_ms
    times.ahead_ms += HOUR
    for elapsed in (0, AGE - 1, AGE, AGE + 1):
        times.steady_ms = at + elapsed
        old = finished_at_ms < times.clock.cautious_ms(AGE) - AGE
        assert old == (elapsed > AGE)


def test_a_clock_that_was_set_for_good_is_believed_once_nothing_of_before_can_be_young() -> None:
    times = Times()
    times.ahead_ms += 365 * 24 * HOUR
    times.steady_ms += AGE
    assert times.judged() == 365 * 24 * HOUR
    times.steady_ms += 1
    assert times.judged() == 0


def test_a_clock_that_went_back_is_followed_at_once() -> None:
    times = Times()
    times.ahead_ms -= HOUR
    assert times.clock.cautious_ms(AGE) == times.wall()


MOVES = st.lists(
    st.tuples(st.integers(0, 3 * HOUR), st.integers(-2 * HOUR, 2 * HOUR), st.booleans()),
    max_size=2 * OFFSETS_MAX,
)


@given(MOVES, st.integers(1, 6))
def test_what_is_judged_old_has_really_been_over_for_longer(
    moves: list[tuple[int, int, bool]], hours: int
) -> None:
    times, age = Times(), hours * HOUR
    ended: list[tuple[int, int]] = []
    for elapsed, set_by, ends in moves:
        times.steady_ms += elapsed
        times.ahead_ms += set_by
        if ends:
            ended.append((times.clock(), times.steady_ms))
        before_ms = times.clock.cautious_ms(age) - age
        for finished_at_ms, at in ended:
            if finished_at_ms < before_ms:
                assert times.steady_ms - at > age
    assert len(times.clock._offsets) <= OFFSETS_MAX


@given(MOVES)
def test_whatever_happened_a_clock_left_alone_is_believed_after_one_age(
    moves: list[tuple[int, int, bool]],
) -> None:
    times = Times()
    for elapsed, set_by, _ in moves:
        times.steady_ms += elapsed
        times.ahead_ms += set_by
        times.clock()
    times.steady_ms += AGE + 1
    assert times.judged() <= 1000
