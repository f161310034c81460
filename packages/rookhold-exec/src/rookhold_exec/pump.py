"""Moving one of a job's pipes into its capture, with backpressure."""

from __future__ import annotations

import asyncio  # noqa: TID251 - drives a descriptor on the loop
import os
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
        """Stop reading; what was not read yet is lost, what was is complete."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._sink(self.capture.finish())
