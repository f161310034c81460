from __future__ import annotations

import pytest

from rookhold import CapacityError, NotFoundError, RookholdError, UnreachableError, WaitExpiredError
from rookhold._patience import Pace, Patience


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def limited(retry_after: int, code: str = "rate_limit_exceeded") -> CapacityError:
    return CapacityError("no", code=code, status=429, retryable=True, retry_after=retry_after)


def _fail_for_ever(patience: Patience, error: RookholdError) -> None:
    while True:
        patience.failed(error)


@pytest.mark.parametrize("news", [True, False])
def test_following_asks_less_than_half_of_what_a_tenant_may(news: bool) -> None:
    clock = Clock()
    pace = Pace(clock.sleep)
    while clock.now < 60:
        if news:
            pace.news()
        pace.rest()
    assert len(clock.slept) < 650


def test_the_first_looks_come_quickly() -> None:
    clock = Clock()
    pace = Pace(clock.sleep)
    for _ in range(3):
        pace.rest()
    assert clock.now < 0.1


def test_a_gateway_that_stays_away_is_given_up() -> None:
    clock = Clock()
    patience = Patience(30, clock=clock, sleep=clock.sleep)
    with pytest.raises(UnreachableError):
        _fail_for_ever(patience, UnreachableError("away"))
    assert 25 < clock.now <= 30


def test_a_look_that_worked_starts_the_patience_anew() -> None:
    clock = Clock()
    patience = Patience(5, clock=clock, sleep=clock.sleep)
    for _ in range(20):
        patience.failed(UnreachableError("away"))
        patience.worked()
    assert clock.slept == [0.1] * 20


def test_a_rate_limit_is_waited_out_however_long_it_says() -> None:
    clock = Clock()
    patience = Patience(5, clock=clock, sleep=clock.sleep)
    patience.failed(limited(60))
    assert clock.slept == [60.0]


def test_another_refusal_that_takes_longer_than_the_patience_is_final() -> None:
    clock = Clock()
    patience = Patience(5, clock=clock, sleep=clock.sleep)
    with pytest.raises(CapacityError):
        patience.failed(limited(6, "queue_saturated"))
    assert clock.slept == []


def test_what_is_not_retryable_is_final() -> None:
    clock = Clock()
    patience = Patience(5, clock=clock, sleep=clock.sleep)
    with pytest.raises(NotFoundError):
        patience.failed(NotFoundError("no", code="job_not_found", status=404))
    assert clock.slept == []


def test_the_callers_deadline_cuts_every_pause() -> None:
    clock = Clock()
    patience = Patience(1000, until=10, clock=clock, sleep=clock.sleep)
    with pytest.raises(WaitExpiredError):
        _fail_for_ever(patience, limited(60))
    assert clock.now == 10
