"""One request and its answer on an HTTP/2 stream, as an ASGI application sees them."""

from __future__ import annotations

import asyncio  # noqa: TID251 - events between the loop's reader and the handler
from typing import TYPE_CHECKING, Any, Final, Protocol

from rookhold_server.http.transport.gone import ClientGoneError

if TYPE_CHECKING:
    from collections.abc import Sequence

Headers = list[tuple[bytes, bytes]]

# What is of one connection in HTTP/1 has no place in HTTP/2 (RFC 9113, section 8.2.2).
_OF_A_CONNECTION: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
_BODILESS: Final = frozenset({204, 304})


class Wire(Protocol):
    """What an exchange needs of its connection; only `answer` raises, ClientGoneError."""

    async def interim(self, exchange: Exchange) -> None: ...
    async def consumed(self, exchange: Exchange, size: int) -> None: ...
    async def answer(self, exchange: Exchange, data: bytes, *, end: bool) -> None: ...


class Exchange:
    """The connection tells it what comes; the application takes it, and answers."""

    def __init__(self, wire: Wire, stream_id: int, method: str, headers: Sequence[Any]) -> None:
        self._wire = wire
        self._method = method
        self._changed = asyncio.Event()
        self._body = bytearray()
        self._complete_told = False
        self._awaits_interim = (b"expect", b"100-continue") in headers
        self.stream_id = stream_id
        self.window = asyncio.Event()  # set when the peer may have made room for more
        self.stalled_since: float | None = None  # no room since then
        self.head: Headers | None = None  # goes out with the first piece of the body
        self.owed = 0  # bytes of the peer's window that were not given back
        self.complete = False  # the request is
        self.answered = False  # to the end
        self.gone = False
        self.closed = False  # by a reset

    def feed(self, data: bytes, size: int) -> None:
        """Take a piece of the body, which used up `size` bytes of the window."""
        self._body += data
        self.owed += size
        self._awaits_interim = False
        self._changed.set()

    def finish(self) -> None:
        self.complete = True
        self._changed.set()

    def leave(self) -> None:
        """Nothing can be told to the peer on this stream any more."""
        self.gone = True
        self._changed.set()
        self.window.set()

    async def receive(self) -> dict[str, Any]:
        """Give the window back only here: a body that nobody asks for stays with the peer."""
        if self._awaits_interim and not (self.complete or self.gone or self.answered):
            self._awaits_interim = False
            await self._wire.interim(self)
        while True:
            if self.gone or self.answered:
                return {"type": "http.disconnect"}
            if self._body or (self.complete and not self._complete_told):
                data = bytes(self._body)
                self._body.clear()
                self._complete_told = self.complete
                more = not self._complete_told
                owed, self.owed = self.owed, 0
                await self._wire.consumed(self, owed)
                return {"type": "http.request", "body": data, "more_body": more}
            self._changed.clear()
            await self._changed.wait()

    async def send(self, message: dict[str, Any]) -> None:
        if self.gone or self.answered:
            raise ClientGoneError
        if message["type"] == "http.response.start":
            status = int(message["status"])
            headers = [
                (name, value)
                for name, value in message.get("headers", [])
                if name not in _OF_A_CONNECTION
            ]
            self.head = [(b":status", b"%d" % status), *headers]
            self._method = "HEAD" if status in _BODILESS else self._method
            # One packet with the body; a body of unknown length may be long in coming.
            if not any(name == b"content-length" for name, _ in headers):
                await self._wire.answer(self, b"", end=False)
        else:
            data = b"" if self._method == "HEAD" else message.get("body", b"")
            await self._wire.answer(self, data, end=not message.get("more_body", False))
