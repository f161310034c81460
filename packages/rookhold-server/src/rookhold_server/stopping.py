"""Requests to stop, from the first to the end of the process."""

from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Self

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_READ: Final = 64


class StopRequests:
    """Counts SIGTERM and SIGINT from `with` on; after it both are ignored.

    A loop's own signal handling puts the default actions back when it ends, and an impatient second
    signal in that moment would change the exit status of an orderly stop. Here one handler gives
    way to being ignored, with nothing between. The interpreter's ending needs the latter: it puts
    the default action in the place of every handler that is written in Python.
    """

    def __init__(self) -> None:
        self._arrived, self._wakeup = socket.socketpair()

    def __enter__(self) -> Self:
        for end in (self._arrived, self._wakeup):
            end.setblocking(False)
        # Written to at once, in whichever thread the kernel delivers the signal.
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, _note)
        # Whoever started us may have blocked them for itself; exec hands that on.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        self._arrived.close()
        self._wakeup.close()

    async def next(self) -> None:
        """Return when at least one has come since the last call."""
        while True:
            await anyio.wait_readable(self._arrived)
            if any(number in SIGNALS for number in self._arrived.recv(_READ)):
                return


def _note(number: int, frame: FrameType | None) -> None:
    """Do nothing: that there is a handler is what has the number written to the socket."""
