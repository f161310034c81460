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

from rookhold_server.http.transport.channel import HTTP2, NotTlsError, Plain, Secure
from rookhold_server.http.transport.gone import ClientGoneError
from rookhold_server.http.transport.http1 import Http1, refused_head

if TYPE_CHECKING:
    import ssl

    from rookhold_server.http.transport.http2 import Http2
    from rookhold_server.http.transport.limits import TransportLimits

__all__ = ["ClientGoneError", "Connection"]

# From this share of its life on, a connection ends with its next answer rather than in one.
_RETIREMENT: Final = 0.9
_DROPPED_BYTES: Final = 1 << 16


class Connection(TCPServer):
    """A connection is judged by `check` from outside; it starts no timer or task of its own."""

    protocol: Http1 | Http2 | None = None  # type: ignore[assignment]  # no wrapper that chooses

    def __init__(
        self, *arguments: Any, limits: TransportLimits, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(*arguments)
        self._limits = limits
        self._secure = tls is not None
        self._channel = (
            Plain(self.reader, self.writer)
            if tls is None
            else Secure(self.reader, self.writer, tls)
        )
        self._socket = self.writer.get_extra_info("socket")
        self._opened = self._progress_at = self.loop.time()
        self._head_since: float | None = self._opened  # None while a request is being answered
        self._accepted = 0
        self._ending = False
        # Each write waits until the kernel has all of it: at most one chunk is ever queued here.
        self.writer.transport.set_write_buffer_limits(high=0)

    @property
    def idle(self) -> bool:
        return self._head_since is not None

    async def run(self) -> None:
        try:
            peer = parse_socket_addr(self._socket.family, self._socket.getpeername())
            own = parse_socket_addr(self._socket.family, self._socket.getsockname())
            spoken = await self._channel.open()
            async with TaskGroup(self.loop) as task_group:
                self.protocol = self._protocol(spoken, task_group, peer, own)
                await self._read_data(self.protocol)
        except NotTlsError:
            await self._answer_plainly()
        except OSError:
            pass  # the peer left before it could be asked for its address, or in its handshake
        finally:
            await self._close()

    def _protocol(self, spoken: str, task_group: TaskGroup, peer: Any, own: Any) -> Http1 | Http2:
        if spoken == HTTP2:
            from rookhold_server.http.transport.http2 import Http2  # only where TLS is served

            return Http2(
                self.app, self.config, task_group, peer, own, self.protocol_send, self._limits
            )
        protocol = Http1(
            self.app,
            self.config,
            self.context,
            task_group,
            ConnectionState(self.state),
            self._secure,
            peer,
            own,
            self.protocol_send,
        )
        protocol.retiring = self._is_retiring
        return protocol

    async def _answer_plainly(self) -> None:
        """Tell a client that has forgotten the s of https; browsers show what they are told."""
        with contextlib.suppress(OSError, RuntimeError):
            self.writer.write(refused_head(self.config))
            self._begin_end()
            while await self.reader.read(_DROPPED_BYTES):
                pass

    async def protocol_send(self, event: Event) -> None:
        if isinstance(event, RawData):
            await self._write(event.data)
        elif isinstance(event, Updated):
            self._head_since = self.loop.time() if event.idle else None
        elif not self._ending:
            self._begin_end()

    async def _write(self, data: bytes) -> None:
        try:
            self._channel.put(data)
            await self._channel.drain()
        except (OSError, RuntimeError):  # gone, or already ended from our side
            if self.protocol is not None:
                await self.protocol.handle(Closed())
            raise ClientGoneError from None

    async def _read_data(self, protocol: Http1 | Http2) -> None:  # type: ignore[override]
        # Nothing may leave this coroutine: the task group would cancel a handler in mid-commit.
        with contextlib.suppress(OSError):  # a reset says no more than an end of file
            await protocol.initiate()
            await self._read_to_the_end(protocol)
        await protocol.handle(Closed())

    async def _read_to_the_end(self, protocol: Http1 | Http2) -> None:
        dropped = 0
        while data := await self._channel.read():
            if not self._ending:
                await protocol.handle(RawData(data))
            elif (dropped := dropped + len(data)) > self._limits.linger_bytes:
                break

    def _begin_end(self) -> None:
        """Send end-of-file, then drop what still comes for a moment.

        Closing with unread bytes would reset the connection, and the reset may overtake the answer.
        """
        self._ending = True
        self._head_since = None
        with contextlib.suppress(OSError, RuntimeError):
            self._channel.end()
        self.loop.call_later(self._limits.linger_seconds, self.writer.transport.abort)

    async def _close(self) -> None:
        with contextlib.suppress(OSError, RuntimeError):
            self.writer.close()
            await self.writer.wait_closed()

    def _is_retiring(self) -> bool:
        age = self.loop.time() - self._opened
        return self.context.terminated.is_set() or age > self._limits.lifetime_seconds * _RETIREMENT

    def check(self, now: float) -> None:
        """Enforce the deadlines; called every tick."""
        limits = self._limits
        buffered = self.writer.transport.get_write_buffer_size()
        if not buffered or (accepted := self._accepted_by_peer(buffered)) != self._accepted:
            self._progress_at = now
            self._accepted = accepted if buffered else self._channel.written
        if (
            now - self._opened >= limits.lifetime_seconds
            or now - self._progress_at >= limits.write_seconds
            or (self.protocol is not None and self.protocol.overdue(now))
        ):
            self.abort()
        elif self._head_since is not None and now - self._head_since >= limits.head_seconds:
            self.release()
        elif self.protocol is not None and self._is_retiring():
            self._say(self.protocol.retire())

    def release(self) -> None:
        """End a connection on which nothing is asked; one of HTTP/2 is told so, for its sake."""
        said = self.idle and self.protocol is not None and self._say(self.protocol.retire())
        if said:
            self._begin_end()
        else:
            self.abort()

    def retire(self) -> None:
        """Let what is being answered be the last."""
        if self.idle:
            self.release()
        elif self.protocol is not None:
            self._say(self.protocol.retire())

    def _say(self, data: bytes) -> bool:
        """Hand over a few bytes without waiting for the peer to take them."""
        if not data or self._ending:
            return False
        with contextlib.suppress(OSError, RuntimeError):
            self._channel.put(data)
        return True

    def _accepted_by_peer(self, buffered: int) -> int:
        """Bytes acknowledged.

        The kernel wakes a writer only after a good part of its buffer has drained: counted by what
        the kernel takes, a slow reader would look like a stuck one.
        """
        waiting = array("i", [0])
        with contextlib.suppress(OSError, ValueError):
            fcntl.ioctl(self._socket, termios.TIOCOUTQ, waiting)
        return self._channel.written - buffered - waiting[0]

    def abort(self) -> None:
        """Close at once, whatever is buffered, and wake the reader wherever it waits."""
        self.writer.transport.abort()
        if self.protocol is not None:
            self.protocol.end()
