"""Moving one of a job's pipes into its capture, with backpressure."""

from __future__ import annotations

import asyncio  # noqa: TID251 - drives a descriptor on the loop
import fcntl
import os
import sys
import termios
from contextlib import suppress
from typing import TYPE_CHECKING

from rookhold_exec.capture import StreamCapture

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rookhold_exec.executor import ExecEvent, StreamName

_CHUNK = 65_536
_READS = 4  # chunks taken at once, so that a flood does not keep the loop to itself


class Pump:
    """Owns the read end of a pipe until its end of file."""

    def __init__(
        self, fd: int, stream: StreamName, sink: Callable[[Sequence[ExecEvent]], bool]
    ) -> None:
        """`sink` takes what was captured, and says whether it has room for more."""
        self._loop = asyncio.get_running_loop()
        self._fd = fd
        self._sink = sink
        self.capture = StreamCapture(stream)
        self.paused = False
        self.closed = False
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def _read(self) -> None:
        for _ in range(_READS):
            try:
                data = os.read(self._fd, _CHUNK)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.close()
                return
            records = self.capture.feed(data)
            if records and not self._sink(records):
                self.paused = True
                self._loop.remove_reader(self._fd)
                return
            if len(data) < _CHUNK // 2:
                return  # most likely empty now; the loop will say if it is not

    def resume(self) -> None:
        """Read again, after the sink has room."""
        if self.paused and not self.closed:
            self.paused = False
            self._loop.add_reader(self._fd, self._read)

    def close(self) -> None:
        """Stop reading, after what the pipe holds now: a job that has ended wrote it before that.

        On a machine that is short of time its reader may come later than whoever ends the reading.
        """
        if self.closed:
            return
        self._loop.remove_reader(self._fd)
        with suppress(OSError):
            self._take_rest()
        self.closed = True
        os.close(self._fd)
        self._sink(self.capture.finish())

    def _take_rest(self) -> None:
        """Read no more than is there, since a process that got away may go on writing."""
        left = int.from_bytes(fcntl.ioctl(self._fd, termios.FIONREAD, bytes(4)), sys.byteorder)
        while left > 0 and (data := os.read(self._fd, min(left, _CHUNK))):
            left -= len(data)
            if records := self.capture.feed(data):
                self._sink(records)
