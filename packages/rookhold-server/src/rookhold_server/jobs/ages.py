"""The clock that jobs are stamped with, watched, so that none seems older than it is."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from rookhold_types.clock import Clock

SAME_MS: Final = 1000  # offsets this close are the same clock, read at different moments
OFFSETS_MAX: Final = 64  # of a clock that is set again and again, the lowest are kept together


def boot_ms() -> int:
    """Milliseconds since the machine started; nobody sets this clock, and it runs in sleep too."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class _Offset(Struct):
    """How far the wall clock was ahead of the steady one, and when that was last so."""

    lowest_ms: int
    seen_ms: int


class WatchedClock:
    """Tells the wall clock's time, and remembers how it was set while jobs were stamped with it.

    A job that ended under a clock that was an hour behind looks an hour older once the clock is
    right; under one that is an hour ahead now, all of them do. So an age is counted from the lowest
    of the clocks that can have stamped a job which is not old yet: one that was last seen longer
    ago than the age has stamped none.
    """

    def __init__(self, wall: Clock, steady: Clock = boot_ms) -> None:
        self._wall = wall
        self._steady = steady
        self._lock = threading.Lock()
        self._offsets: list[_Offset] = []
        self._note(wall(), steady())

    def __call__(self) -> int:
        """Return the wall clock's time; whatever it is, it is what a job is stamped with."""
        wall_ms = self._wall()
        self._note(wall_ms, self._steady())
        return wall_ms

    def cautious_ms(self, age_ms: int) -> int:
        """Return a time, never later than the wall clock's, by which `age_ms` may be judged."""
        wall_ms, steady_ms = self._wall(), self._steady()
        self._note(wall_ms, steady_ms)
        with self._lock:
            self._offsets = [
                offset for offset in self._offsets if steady_ms - offset.seen_ms <= age_ms
            ]
            return min(wall_ms, steady_ms + min(each.lowest_ms for each in self._offsets))

    def _note(self, wall_ms: int, steady_ms: int) -> None:
        found = wall_ms - steady_ms
        with self._lock:
            for offset in self._offsets:
                if abs(found - offset.lowest_ms) <= SAME_MS:
                    offset.lowest_ms = min(offset.lowest_ms, found)
                    offset.seen_ms = max(offset.seen_ms, steady_ms)
                    return
            self._offsets.append(_Offset(found, steady_ms))
            if len(self._offsets) > OFFSETS_MAX:
                self._offsets.sort(key=lambda offset: offset.lowest_ms)
                second = self._offsets.pop(1)
                self._offsets[0].seen_ms = max(self._offsets[0].seen_ms, second.seen_ms)
