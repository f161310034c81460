"""What signals ask of the process: to end, or to read its credentials again."""

from __future__ import annotations

import contextlib
import signal
import socket
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio

if TYPE_CHECKING:
    from types import FrameType, TracebackType
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
        self._noted: set[int] = set()

    def __enter__(self) -> Self:
        for end in (self._arrived, self._wakeup):
            end.setblocking(False)
        # Written to at once, in whichever thread the kernel delivers the signal.
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        for number in self._signals:
            signal.signal(number, self._note)
        # Whoever started us may have blocked them for itself; exec hands that on.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._signals)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number in self._signals:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        self._arrived.close()
        self._wakeup.close()

    async def next(self) -> Asked:
        """Return when at least one has come since the last call."""
        while True:
            await anyio.wait_readable(self._arrived)
            self._arrived.recv(_READ)  # tells only that there is something to see
            numbers, self._noted = self._noted, set()
            asked = Asked(stop=not numbers.isdisjoint(STOP), reload=RELOAD in numbers)
            if asked.stop or asked.reload:
                return asked

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Of numbers on the socket one could be lost, where many signals fill it.

        So a byte there only wakes: the interpreter's has this called, ours comes after the note.
        """
        self._noted.add(number)
        with contextlib.suppress(OSError):  # full: what fills it wakes us all the same
            self._wakeup.send(b"\0")
