"""How long to wait before a failed step is tried again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def doubling(first_seconds: float, last_seconds: float) -> Iterator[float]:
    """Yield waits without end, each twice the one before, never above `last_seconds`."""
    wait = first_seconds
    while True:
        yield wait
        wait = min(wait * 2, last_seconds)


def store_retry() -> Iterator[float]:
    """The waits of every step that must not give up on the store: 10 ms, doubling to 1 s."""
    return doubling(0.010, 1.0)


def recovery_retry() -> Iterator[float]:
    """The waits between the eight attempts that start-up recovery has: 20 ms, doubling to 1 s."""
    return doubling(0.020, 1.0)
