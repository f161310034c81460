"""Turns requests to end into exceptions, once each, and holds them off while cleaning up."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import TYPE_CHECKING, Any, Final

from .errors import TerminatedError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
_ALL: Final = (signal.SIGINT, *_ENDING)
_BURST_SECONDS: Final = 1.0


class _Request:
    """Raises for a signal. What follows within a moment is the same request, said impatiently.

    Were it raised again, it could interrupt the cleanup that the first one began.
    """

    def __init__(self) -> None:
        self._raised_at: float | None = None

    def __call__(self, number: int, _frame: Any) -> None:
        now = time.monotonic()
        if self._raised_at is not None and now - self._raised_at < _BURST_SECONDS:
            return
        self._raised_at = now
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise TerminatedError(number)


@contextlib.contextmanager
def termination_is_an_exception() -> Iterator[None]:
    """Inside, a request to end unwinds the stack, so that what was started is stopped."""
    request = _Request()
    before = {number: signal.getsignal(number) for number in _ALL}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup asked for it
            signal.signal(number, request)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C and requests to end; only for cleanup that ends in bounded time."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in _ALL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
