"""What signals ask of the process: to end, or to read its credentials again."""

from __future__ import annotations

import signal
import socket
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio
import anyio.lowlevel

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

STOP: Final = (signal.SIGTERM, signal.SIGINT)
RELOAD: Final = signal.SIGHUP
_READ: Final = 4096


class Asked(NamedTuple):
    """What has come since one last looked; both may have."""

    stop: bool
    reload: bool


class Signals:
    """Counts signals from `with` on; after it they are ignored.

    A loop's own signal handling puts the default actions back when it ends, and an impatient second
    signal in that moment would change the exit status of an orderly stop. Here one handler gives
    way to being ignored, with nothing between. The interpreter's ending needs the latter: it puts
    the default action in the place of every handler that is written in Python.
    """

    def __init__(self, *, reloads: bool = False) -> None:
        """Without `reloads` SIGHUP keeps the meaning it had: a terminal that went away."""
        self._signals = (*STOP, RELOAD) if reloads else STOP
        self._arrived, self._wakeup = socket.socketpair()
        # By number, with the frame that was interrupted. A number on the socket could be lost where
        # many signals fill it. What notes them is not written in Python, and so is not interrupted
        # by the next one itself: a storm would nest such handlers without end.
        self._noted: dict[int, object] = {}

    def __enter__(self) -> Self:
        for end in (self._arrived, self._wakeup):
            end.setblocking(False)
        # Written to at once, in whichever thread the kernel delivers the signal.
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        for number in self._signals:
            signal.signal(number, self._noted.setdefault)
        # Whoever started us may have blocked them for itself; exec hands that on.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # One that came just before it was ignored is of no use now, and the interpreter says so.
        said, sys.unraisablehook = sys.unraisablehook, lambda _: None
        for number in self._signals:
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, ())  # looks for those, now that no more can come
        sys.unraisablehook = said
        signal.set_wakeup_fd(-1)
        self._arrived.close()
        self._wakeup.close()
        self._noted.clear()

    async def next(self) -> Asked:
        """Return when at least one has come since the last call."""
        while True:
            await anyio.wait_readable(self._arrived)
            self._arrived.recv(_READ)  # tells only that there is something to see
            # The kernel's part of a signal writes the byte, the interpreter notes the number a
            # little later, between two steps of this thread.
            await anyio.lowlevel.checkpoint()
            came = {number for number in self._signals if self._noted.pop(number, self) is not self}
            if came:
                return Asked(stop=not came.isdisjoint(STOP), reload=RELOAD in came)
