"""Turns SIGTERM and SIGHUP into an exception, and holds signals off while cleaning up."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any

from .errors import TerminatedError

if TYPE_CHECKING:
    from collections.abc import Iterator

_ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def _terminate(number: int, _frame: Any) -> None:
    raise TerminatedError(number)


@contextlib.contextmanager
def termination_is_an_exception() -> Iterator[None]:
    """Inside, a request to end unwinds the stack, so that what was started is stopped."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup asked for it
            signal.signal(number, _terminate)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Ignore Ctrl-C and requests to end; only for cleanup that ends in bounded time."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (*_ENDING, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
