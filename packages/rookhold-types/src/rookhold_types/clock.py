"""The wall clock in the unit that every interface here uses: Unix milliseconds."""

import time
from collections.abc import Callable

Clock = Callable[[], int]


def now_ms() -> int:
    """Return the present Unix time in milliseconds."""
    return time.time_ns() // 1_000_000
