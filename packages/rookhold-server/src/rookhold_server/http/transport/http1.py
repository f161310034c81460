"""HTTP/1 on one connection: hypercorn's protocol, with a request body that waits to be asked for.

hypercorn answers `Expect: 100-continue` as soon as it sees the head and reads the body ahead of the
application. Here nothing of a body is taken from the socket before the handler calls `receive()`,
and the interim answer goes out at that moment. A connection whose request was answered without its
body being read is closed, and the answer says so.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - one event between the loop's reader and the handler
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import h11
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Body, EndBody, Request, Response, StreamClosed
from hypercorn.protocol.h11 import STREAM_ID, H11Protocol
from hypercorn.protocol.http_stream import ASGIHTTPState, HTTPStream

from rookhold_server.http.problems import internal_answer, malformed_request
from rookhold_server.http.transport.gone import ClientGoneError
from rookhold_server.http.transport.tunnel import SWITCH, Tunnel

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypercorn.config import Config
    from hypercorn.protocol.events import Event as StreamEvent
    from hypercorn.typing import ASGISendEvent, H11SendableEvent

_CLOSE: Final = (b"connection", b"close")
_SCHEMES: Final = frozenset({b"http", b"https"})
_VERSIONS: Final = frozenset({b"1.0", b"1.1"})
_AWAITED: Final = frozenset({h11.IDLE, h11.SEND_RESPONSE})  # the states in which an answer is due


class _Exchange(HTTPStream):
    """One request and its answer."""

    switched = False  # the answer is 101, and what follows is not HTTP

    async def app_send(self, message: ASGISendEvent | None) -> None:
        if message is not None and self.closed:
            raise ClientGoneError
        if message is None and self.switched and not self.closed:
            await self.send(StreamClosed(stream_id=self.stream_id))
        else:
            await super().app_send(message)

    async def _send_error_response(self, status_code: int) -> None:
        """Answer for an application that ended without an answer, in the envelope too."""
        headers, body = internal_answer()
        headers.append(_CLOSE)
        await self.send(
            Response(stream_id=self.stream_id, headers=headers, status_code=status_code)
        )
        await self.send(Body(stream_id=self.stream_id, data=body))
        await self.send(EndBody(stream_id=self.stream_id))
        self.state = ASGIHTTPState.CLOSED


class Http1(H11Protocol):
    """`retiring` tells whether the connection should end with the answer being sent."""

    retiring: Callable[[], bool]

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._asked = asyncio.Event()  # the handler wants a piece of the body
        self._unread_body = False  # the current request has a body that is not fully read
        self._held_head = b""  # goes out with the first piece of the answer's body
        self._tunnel: Tunnel | None = None
        self._ended = False

    async def handle(self, event: Event) -> None:
        if isinstance(event, RawData):
            if self._ended:
                return
            if self._tunnel is not None:
                await self._tunnel.feed(event.data)
            else:
                self.connection.receive_data(event.data)
                await self._handle_events()
        else:
            self.end()
            if self.stream is not None:
                await self._close_stream()

    async def _handle_events(self) -> None:
        while not self._ended:
            if self._unread_body and not self._asked.is_set():
                await self._asked.wait()
                continue  # asked, or ended meanwhile
            if self._unread_body and self.connection.they_are_waiting_for_100_continue:
                await self._send_h11_event(h11.InformationalResponse(status_code=100, headers=[]))
            try:
                event = self.connection.next_event()
            except h11.RemoteProtocolError as error:
                await self._refuse(error.error_status_hint)
                return
            if isinstance(event, h11.Request):
                if event.http_version not in _VERSIONS:
                    await self._refuse(505)
                    return
                if _two_framings(event):
                    await self._refuse(400)
                    return
                await self.send(Updated(idle=False))
                self._unread_body = _has_body(event)
                await self._create_stream(event)
            elif event is h11.PAUSED:
                if self._tunnel is None:
                    await self.can_read.clear()
                    await self.can_read.wait()
                if self._tunnel is not None:
                    return
            elif (
                event is h11.NEED_DATA
                or isinstance(event, h11.ConnectionClosed)
                or self.stream is None
            ):
                return
            elif isinstance(event, h11.Data):
                self._asked.clear()
                await self.stream.handle(Body(stream_id=STREAM_ID, data=event.data))
            elif isinstance(event, h11.EndOfMessage):
                self._unread_body = False
                await self.stream.handle(EndBody(stream_id=STREAM_ID))

    async def _create_stream(self, request: h11.Request) -> None:
        self._asked.clear()
        self.stream = _Exchange(
            self._run_app,
            self.config,
            self.context,
            self.task_group,
            self.ssl,
            self.client,
            self.server,
            self.stream_send,
            STREAM_ID,
        )
        await self.stream.handle(
            Request(
                stream_id=STREAM_ID,
                headers=list(request.headers),
                http_version=request.http_version.decode(),
                method=request.method.decode("ascii").upper(),
                raw_path=_origin_form(request.target),
                state=self.connection_state,
            )
        )

    async def _run_app(
        self, scope: Any, receive: Any, send: Any, sync_spawn: Any, call_soon: Any
    ) -> None:
        async def ask() -> Any:
            self._asked.set()
            return await receive()

        scope["extensions"][SWITCH] = self._switch
        await self.app(scope, ask, send, sync_spawn, call_soon)

    async def _switch(self, headers: list[tuple[bytes, bytes]]) -> Tunnel:
        """Answer 101 with these headers and leave HTTP; only for a request that asked for it."""
        if not isinstance(self.stream, _Exchange) or self._ended:
            raise ClientGoneError
        answer = h11.InformationalResponse(status_code=101, headers=headers)
        data = self.connection.send(answer)
        self.stream.switched = True
        self._tunnel = Tunnel(self._send_raw, self.connection.trailing_data[0])
        self.can_read._event.set()  # type: ignore[attr-defined]  # the reader, if it waits for us
        await self._send_raw(data or b"")
        return self._tunnel

    async def _send_raw(self, data: bytes) -> None:
        if self._ended:
            raise ClientGoneError
        await self.send(RawData(data=data))

    async def stream_send(self, event: StreamEvent) -> None:
        if not isinstance(event, Response):
            await super().stream_send(event)
            return
        headers = list(chain(event.headers, self.config.response_headers("h11")))
        if (self._unread_body or self.retiring()) and _CLOSE not in headers:
            headers.append(_CLOSE)
        await self._send_h11_event(h11.Response(headers=headers, status_code=event.status_code))

    async def _send_h11_event(self, event: H11SendableEvent) -> None:
        try:
            data = self.connection.send(event)
        except h11.LocalProtocolError:
            if self.connection.their_state is not h11.ERROR:
                raise
            return
        # One packet, where head and body fit in it; a body of unknown length may be long in coming.
        if isinstance(event, h11.Response) and _has_length(event):
            self._held_head = data or b""
            return
        data, self._held_head = self._held_head + (data or b""), b""
        if data:
            await self.send(RawData(data=data))

    async def _refuse(self, status_code: int) -> None:
        """Answer what is not a request, unless an answer is already under way."""
        self._unread_body = False
        if self.connection.our_state in _AWAITED:
            await self._send_error_response(status_code)
        await self.handle(Closed())
        await self.send(Closed())

    async def _send_error_response(self, status_code: int) -> None:
        headers, body = malformed_request()
        await self._send_h11_event(
            h11.Response(
                status_code=status_code,
                headers=[*headers, _CLOSE, *self.config.response_headers("h11")],
            )
        )
        await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())

    async def _maybe_recycle(self) -> None:
        await self._close_stream()
        done = self.connection.our_state is h11.DONE and self.connection.their_state is h11.DONE
        if done and not self.retiring():
            self.connection.start_next_cycle()
            await self.can_read.set()
            await self.send(Updated(idle=True))
        else:
            self.end()
            await self.send(Closed())

    def overdue(self, now: float) -> bool:
        """Nothing: the deadlines of HTTP/1 are those of its connection."""
        del now
        return False

    def retire(self) -> bytes:
        """Nothing to say: the next answer will, see `retiring`."""
        return b""

    def end(self) -> None:
        """Let the reader go, wherever it waits; it takes nothing more from this peer."""
        self._ended = True
        self._asked.set()
        if self._tunnel is not None:
            self._tunnel.end()
        self.can_read._event.set()  # type: ignore[attr-defined]  # its own `set` is a coroutine


def refused_head(config: Config) -> bytes:
    """Return a whole answer for a peer that speaks HTTP where TLS is spoken."""
    headers, body = malformed_request("This listener speaks HTTPS only.")
    lines = [*headers, _CLOSE, *config.response_headers("h11")]
    return b"HTTP/1.1 400 \r\n" + b"".join(b"%b: %b\r\n" % line for line in lines) + b"\r\n" + body


def _has_length(answer: h11.Response) -> bool:
    return any(name == b"content-length" for name, _ in answer.headers)


def _has_body(request: h11.Request) -> bool:
    """Whether bytes of a body follow the head."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and int(value) > 0)
        for name, value in request.headers
    )


def _two_framings(request: h11.Request) -> bool:
    """Whether a proxy before us may see the end of this request elsewhere than we do.

    h11 lets Transfer-Encoding win over a Content-Length, and takes it from an HTTP/1.0 peer; what
    others read as the next request would then be the rest of this body (RFC 9112, section 6.1).
    """
    names = {name for name, _ in request.headers}
    return b"transfer-encoding" in names and (
        b"content-length" in names or request.http_version == b"1.0"
    )


def _origin_form(target: bytes) -> bytes:
    """Path and query of a target that names the server too (RFC 9112, section 3.2.2)."""
    scheme, separator, rest = target.partition(b"://")
    if separator and scheme.lower() in _SCHEMES:
        return b"/" + rest.partition(b"/")[2]
    return target
