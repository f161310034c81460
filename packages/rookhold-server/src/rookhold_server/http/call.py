"""One request and its answer, as handlers see them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio

from rookhold_server.http.transport.tunnel import SWITCH
from rookhold_types.ids import new_request_id
from rookhold_types.limits import BODY_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from rookhold_server.http.transport.tunnel import Tunnel
    from rookhold_server.identity.principal import Principal

JSON: Final = b"application/json"
CHUNK_BYTES: Final = 64 * 1024
NO_STORE: Final = ((b"cache-control", b"no-store"), (b"pragma", b"no-cache"))
_CLOSE: Final = (b"connection", b"close")


class Call:
    """Belongs to one request; `headers` go out with whatever answer it gets."""

    __slots__ = (
        "_body_ended",
        "_receive",
        "_send",
        "closes_if_unread",
        "code",
        "flat",
        "headers",
        "method",
        "principal",
        "raw_headers",
        "request_id",
        "route",
        "scope",
        "started",
        "status",
    )

    def __init__(
        self,
        scope: Any,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
    ) -> None:
        self.scope = scope
        self.method: str = scope["method"]
        self.raw_headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.request_id = new_request_id()
        self.headers: list[tuple[bytes, bytes]] = []
        self.route = ""  # the template, once a route was found
        self.status = 0
        self.code: str | None = None  # of the refusal, if it is one
        self.started = False
        self.closes_if_unread = False
        self.flat = False  # errors in the shape of the governance routes
        self._body_ended = False
        self._receive = receive
        self._send = send

    @property
    def asgi(self) -> tuple[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]]:
        """What the application was called with."""
        return self.scope, self._receive, self._send

    principal: Principal  # set by the gate, before any handler of the API group runs

    def header(self, name: bytes) -> list[bytes]:
        """Every value of a request header, in order."""
        return [value for key, value in self.raw_headers if key == name]

    def path_parameter(self, name: str) -> str:
        text: str = self.scope["path_params"][name]
        return text

    async def receive(self) -> Any:
        """The next ASGI message; the body is taken from the socket only from here."""
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._body_ended = True
        return message

    async def until_gone(self) -> None:
        """Return when the peer has left. Of a body no more is taken than one may have."""
        taken = 0
        while (message := await self.receive())["type"] != "http.disconnect":
            taken += len(message.get("body", b""))
            if taken > BODY_BYTES_MAX:
                await anyio.sleep_forever()

    async def respond(
        self,
        status: int,
        body: bytes,
        *,
        content_type: bytes = JSON,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        """Send a whole answer, in chunks of 64 KiB, each after the one before has left us."""
        self.started = True
        self.status = status
        all_headers = [
            (b"x-request-id", self.request_id.encode()),
            (b"content-type", content_type),
            (b"content-length", b"%d" % len(body)),
            *self.headers,
            *headers,
        ]
        if self._must_close():
            all_headers.append(_CLOSE)
        await self._send({"type": "http.response.start", "status": status, "headers": all_headers})
        if len(body) <= CHUNK_BYTES:
            await self._send({"type": "http.response.body", "body": body})
            return
        view = memoryview(body)
        for begin in range(0, len(body), CHUNK_BYTES):
            end = begin + CHUNK_BYTES
            await self._send(
                {
                    "type": "http.response.body",
                    "body": view[begin:end],
                    "more_body": end < len(body),
                }
            )

    async def begin(self, status: int, *, content_type: bytes) -> None:
        """Send the head of an answer whose length is not known; `send_chunk` and `end` follow."""
        self.started = True
        self.status = status
        head = [
            (b"x-request-id", self.request_id.encode()),
            (b"content-type", content_type),
            *self.headers,
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": head})

    async def send_chunk(self, data: bytes) -> None:
        """Return when the kernel has it."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})

    async def switch(self, headers: Iterable[tuple[bytes, bytes]]) -> Tunnel:
        """Answer 101 and leave HTTP, for a request that proposed it and has no body."""
        await self.receive()  # to the end of the request: only there may its connection change
        self.started = True
        self.status = 101
        head = [(b"x-request-id", self.request_id.encode()), *self.headers, *headers]
        tunnel: Tunnel = await self.scope["extensions"][SWITCH](head)
        return tunnel

    def _must_close(self) -> bool:
        """The connection rule for refused submissions: HTTP/1, and a body that was not consumed."""
        return (
            self.closes_if_unread
            and not self._body_ended
            and self.scope["http_version"].startswith("1")
            and any(
                name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
                for name, value in self.raw_headers
            )
        )
