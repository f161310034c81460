"""How long to wait between two looks, and when to give up on a gateway that went away."""

import time
from collections.abc import Callable
from typing import Final

from .errors import ApiError, RookholdError, WaitExpiredError

_QUICK_LOOKS: Final = 40
_QUICK: Final = (0.01, 0.05)  # the first looks, so that a short job is not waited for
_STEADY: Final = (0.1, 0.25)  # at most 600 looks a minute, half of what a tenant may ask for
_GROWTH: Final = 1.5


class Pace:
    """Pauses between looks at a running job: short after news, longer while nothing comes."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep = sleep
        self._looks = 0
        self._pause = 0.0

    def news(self) -> None:
        self._pause = 0.0

    def rest(self) -> None:
        low, high = _QUICK if self._looks < _QUICK_LOOKS else _STEADY
        self._looks += 1
        self._pause = min(max(self._pause * _GROWTH, low), high)
        self._sleep(self._pause)


class Patience:
    """Decides whether a failed look is worth another one, and pauses before it.

    A look that failed retryably is repeated until looks have failed for `seconds` on end.
    """

    def __init__(
        self,
        seconds: float,
        *,
        until: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._seconds = seconds
        self._until = until
        self._clock = clock
        self._sleep = sleep
        self._failing_since: float | None = None
        self._pause = 0.0

    def left(self, at_most: float) -> float:
        """Return the time left to wait in, up to `at_most`; raise when there is none."""
        if self._until is None:
            return at_most
        left = self._until - self._clock()
        if left <= 0:
            raise WaitExpiredError("the job is still running")
        return min(left, at_most)

    def worked(self) -> None:
        self._failing_since = None
        self._pause = 0.0

    def failed(self, error: RookholdError) -> None:
        """Pause before another look, or raise `error` when none is worth it."""
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        asked = error.retry_after if isinstance(error, ApiError) else None
        self._pause = min(max(self._pause * 2, 0.1), 2.0)
        pause = self._pause if asked is None else float(asked)
        # A rate limit names the time after which it ends; waiting that long is no failure.
        limited = isinstance(error, ApiError) and error.code == "rate_limit_exceeded"
        given_up = not limited and now + pause - self._failing_since > self._seconds
        if not error.retryable or given_up:
            raise error
        self._sleep(self.left(pause))
