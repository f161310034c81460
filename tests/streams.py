"""Clients of the two kinds of stream, byte by byte, so that they can also misbehave."""

from __future__ import annotations

import base64
import json
import socket
from typing import TYPE_CHECKING, Any

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Message, Ping, TextMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

DEADLINE = 60


class RawAnswer:
    """The head of an answer, and the socket that stands behind it."""

    def __init__(
        self, address: str, path: str, headers: dict[str, str], *, window: int | None = None
    ) -> None:
        """`window` bounds the bytes that our kernel takes before somebody reads them."""
        host, port = address.rsplit(":", 1)
        self.socket = socket.socket()
        self.socket.settimeout(DEADLINE)
        if window is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.socket.connect((host, int(port)))
        lines = [f"GET {path} HTTP/1.1", f"Host: {address}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        data = b""
        while b"\r\n\r\n" not in data:
            piece = self.socket.recv(65536)
            assert piece, f"no answer: {data!r}"
            data += piece
        head, self.rest = data.split(b"\r\n\r\n", 1)
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}

    def json(self) -> Any:
        size = int(self.headers["content-length"])
        while len(self.rest) < size:
            self.rest += self.socket.recv(65536)
        return json.loads(self.rest[:size])

    @property
    def code(self) -> str:
        text: str = self.json()["error"]["code"]
        return text

    def close(self) -> None:
        self.socket.close()


UPGRADE = {
    "Upgrade": "websocket",
    "Connection": "Upgrade",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": base64.b64encode(b"a nonce 16 bytes").decode(),
}


class WebSocket(RawAnswer):
    """After 101 a WebSocket; before it, whatever the answer was."""

    def __init__(
        self,
        address: str,
        path: str,
        headers: dict[str, str] | None = None,
        *,
        window: int | None = None,
    ) -> None:
        super().__init__(address, path, {**UPGRADE, **(headers or {})}, window=window)
        self._frames = Connection(ConnectionType.CLIENT)
        self._text = ""
        self.closed_with: int | None = -1  # -1: not closed; None: closed without a code
        if self.status == 101:
            self._frames.receive_data(self.rest)

    def send_text(self, text: str) -> None:
        self._send(TextMessage(text))

    def send(self, event: Message | Ping | BytesMessage) -> None:
        self._send(event)

    def _send(self, event: Any) -> None:
        self.socket.sendall(self._frames.send(event))

    def texts(self) -> Iterator[str]:
        """Every text message up to the server's close frame, or to the end of the connection."""
        while self.closed_with == -1:
            for event in self._frames.events():
                if isinstance(event, TextMessage):
                    self._text += event.data
                    if event.message_finished:
                        text, self._text = self._text, ""
                        yield text
                elif isinstance(event, CloseConnection):
                    self.closed_with = None if event.code == 1005 else int(event.code)
                    return
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                self.closed_with = 0  # cut
                return
            self._frames.receive_data(data)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.texts()]


class EventSource(RawAnswer):
    """Server-sent events."""

    def frames(self) -> Iterator[dict[str, str]]:
        """Fields of each frame, comments as the field ''; ends with the response."""
        body = b""
        for chunk in self._chunks():
            body += chunk
            while b"\n\n" in body:
                frame, body = body.split(b"\n\n", 1)
                lines = [line.partition(":") for line in frame.decode().split("\n")]
                yield {name: value.removeprefix(" ") for name, _, value in lines}
        assert body == b""

    def _chunks(self) -> Iterator[bytes]:
        assert self.headers["transfer-encoding"] == "chunked"
        data = self.rest
        while True:
            while b"\r\n" not in data:
                piece = self.socket.recv(65536)
                if not piece:
                    raise EOFError
                data += piece
            size_text, data = data.split(b"\r\n", 1)
            size = int(size_text, 16)
            while len(data) < size + 2:
                piece = self.socket.recv(65536)
                if not piece:
                    raise EOFError
                data += piece
            if size == 0:
                return
            yield data[:size]
            data = data[size + 2 :]
