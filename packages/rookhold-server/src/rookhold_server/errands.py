"""A few threads for short calls, with less ceremony than a general pool of them.

anyio's way into a thread and back costs some two hundred microseconds of processor time, more than
ten times as much as a short read of the store; this one costs less than half of that.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - settles futures of the loop from other threads
import queue
import threading
import weakref
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")


class _Load:
    """How many calls are not over; only the loop changes it."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


class _Errand(NamedTuple):
    call: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    load: _Load


class Errands:
    """At most `threads` calls at once, the others in their order; threads start when needed.

    To be used from one loop. The threads end after the last reference to this has gone.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._most = threads
        self._queue: queue.SimpleQueue[_Errand | None] = queue.SimpleQueue()
        self._started = 0
        self._load = _Load()
        self._dismissal = weakref.finalize(self, _dismiss, self._queue, threads)
        self._dismissal.atexit = False  # the threads are daemons: the end of the process is theirs

    async def run(self, call: Callable[[], R]) -> R:
        """Return what `call` returns; it is run to its end also if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        context = copy_context()  # what is logged there is about what is being done here
        self._load.calls += 1
        if self._started < min(self._load.calls, self._most):
            self._start_one()
        self._queue.put(_Errand(partial(context.run, call), loop, future, self._load))
        return await future

    def _start_one(self) -> None:
        self._started += 1
        threading.Thread(
            target=_serve, args=(self._queue,), name=f"{self._name}-{self._started}", daemon=True
        ).start()


def _serve(errands: queue.SimpleQueue[_Errand | None]) -> None:
    while (errand := errands.get()) is not None:
        result, error = None, None
        try:
            result = errand.call()
        except BaseException as raised:  # noqa: BLE001 - the caller's, whatever it is
            error = raised
        with suppress(RuntimeError):  # the loop is closed, and nobody waits any more
            errand.loop.call_soon_threadsafe(_settle, errand, result, error)
        del errand, result, error  # nothing of it outlives it in an idle thread


def _settle(errand: _Errand, result: object, error: BaseException | None) -> None:
    errand.load.calls -= 1
    future = errand.future
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _dismiss(errands: queue.SimpleQueue[_Errand | None], threads: int) -> None:
    for _ in range(threads):
        errands.put(None)
