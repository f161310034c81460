"""One accepted connection: reads, writes with backpressure, and the facts its deadlines need."""

from __future__ import annotations

import contextlib
import fcntl
import termios
from array import array
from typing import TYPE_CHECKING, Any, Final

from hypercorn.asyncio.task_group import TaskGroup
from hypercorn.asyncio.tcp_server import TCPServer
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.typing import ConnectionState
from hypercorn.utils import parse_socket_addr

from rookhold_server.http.transport.http1 import ClientGoneError, Http1

if TYPE_CHECKING:
    from rookhold_server.http.transport.limits import TransportLimits

__all__ = ["ClientGoneError", "Connection"]

_READ_BYTES: Final = 1 << 16
# From this share of its life on, a connection ends with its next answer rather than in one.
_RETIREMENT: Final = 0.9


class Connection(TCPServer):
    """A connection is judged by `check` from outside; it starts no timer or task of its own."""

    def __init__(self, *arguments: Any, limits: TransportLimits) -> None:
        super().__init__(*arguments)
        self._limits = limits
        self._socket = self.writer.get_extra_info("socket")
        self._opened = self._progress_at = self.loop.time()
        self._head_since: float | None = self._opened  # None while a request is being answered
        self._written = 0
        self._accepted = 0
        self._ending = False
        # Each write waits until the kernel has all of it: at most one chunk is ever queued here.
        self.writer.transport.set_write_buffer_limits(high=0)

    @property
    def idle(self) -> bool:
        return self._head_since is not None

    async def run(self) -> None:
        try:
            peer, own = self._socket.getpeername(), self._socket.getsockname()
            async with TaskGroup(self.loop) as task_group:
                self.protocol = Http1(  # type: ignore[assignment]  # the wrapper only chooses one
                    self.app,
                    self.config,
                    self.context,
                    task_group,
                    ConnectionState(self.state),
                    False,
                    parse_socket_addr(self._socket.family, peer),
                    parse_socket_addr(self._socket.family, own),
                    self.protocol_send,
                )
                self.protocol.retiring = self._is_retiring  # type: ignore[attr-defined]
                await self._read_data()
        except OSError:
            pass  # the peer left before it could be asked for its address
        finally:
            await self._close()

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, RawData):
            await self._write(event.data)
        elif isinstance(event, Updated):
            self._head_since = self.loop.time() if event.idle else None
        elif not self._ending:
            self._begin_end()

    async def _write(self, data: bytes) -> None:
        try:
            self.writer.write(data)
            self._written += len(data)
            await self.writer.drain()
        except (ConnectionError, RuntimeError):  # gone, or already ended from our side
            await self.protocol.handle(Closed())
            raise ClientGoneError from None

    async def _read_data(self) -> None:
        # Nothing may leave this coroutine: the task group would cancel a handler in mid-commit.
        with contextlib.suppress(OSError):  # a reset says no more than an end of file
            await self._read_to_the_end()
        await self.protocol.handle(Closed())

    async def _read_to_the_end(self) -> None:
        dropped = 0
        while data := await self.reader.read(_READ_BYTES):
            if not self._ending:
                await self.protocol.handle(RawData(data))
            elif (dropped := dropped + len(data)) > self._limits.linger_bytes:
                break

    def _begin_end(self) -> None:
        """Send end-of-file, then drop what still comes for a moment.

        Closing with unread bytes would reset the connection, and the reset may overtake the answer.
        """
        self._ending = True
        self._head_since = None
        with contextlib.suppress(OSError, RuntimeError):
            self.writer.write_eof()
        self.loop.call_later(self._limits.linger_seconds, self.writer.transport.abort)

    async def _close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self.writer.close()
            await self.writer.wait_closed()

    def _is_retiring(self) -> bool:
        age = self.loop.time() - self._opened
        return self.context.terminated.is_set() or age > self._limits.lifetime_seconds * _RETIREMENT

    def check(self, now: float) -> None:
        """Enforce the three deadlines; called every tick."""
        limits = self._limits
        buffered = self.writer.transport.get_write_buffer_size()
        if not buffered or (accepted := self._accepted_by_peer(buffered)) != self._accepted:
            self._progress_at = now
            self._accepted = accepted if buffered else self._written
        if (
            now - self._opened >= limits.lifetime_seconds
            or now - self._progress_at >= limits.write_seconds
            or (self._head_since is not None and now - self._head_since >= limits.head_seconds)
        ):
            self.abort()

    def _accepted_by_peer(self, buffered: int) -> int:
        """Bytes acknowledged.

        The kernel wakes a writer only after a good part of its buffer has drained: counted by what
        the kernel takes, a slow reader would look like a stuck one.
        """
        waiting = array("i", [0])
        with contextlib.suppress(OSError, ValueError):
            fcntl.ioctl(self._socket, termios.TIOCOUTQ, waiting)
        return self._written - buffered - waiting[0]

    def abort(self) -> None:
        """Close at once, whatever is buffered, and wake the reader wherever it waits."""
        self.writer.transport.abort()
        self.protocol.end()  # type: ignore[attr-defined]  # ours, see `run`
