"""A client of HTTP/2 as a test needs one: whole answers, or frames where frames matter."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

from h2.config import H2Configuration
from h2.connection import ConnectionState, H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    InformationalResponseReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
)
from h2.exceptions import ProtocolError

if TYPE_CHECKING:
    import ssl

SECONDS = 30
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int = 0, stream_id: int = 0, payload: bytes = b"") -> bytes:
    """Return one frame, right or wrong."""
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags])
    return head + stream_id.to_bytes(4, "big") + payload


class Answer(NamedTuple):
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    reset: int | None  # the code of a reset after the answer

    def header(self, name: str) -> str | None:
        return dict(self.headers).get(name)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        assert set(self.json) == {"error"}
        assert set(self.json["error"]) == {"code", "message", "request_id", "retryable"}
        assert self.json["error"]["request_id"] == self.header("x-request-id")
        code: str = self.json["error"]["code"]
        return code


class Http2Peer:
    """One connection. What comes is kept by stream until somebody asks for it."""

    def __init__(self, address: tuple[str, int], tls: ssl.SSLContext, **settings: int) -> None:
        plain = socket.create_connection(address, SECONDS)
        self.socket = tls.wrap_socket(plain, server_hostname=address[0])
        assert self.socket.selected_alpn_protocol() == "h2"
        self.machine = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self.heads: dict[int, list[tuple[str, str]]] = {}
        self.interim: list[int] = []
        self.bodies: dict[int, bytearray] = {}
        self.ended: set[int] = set()
        self.resets: dict[int, int] = {}
        self.goaway: int | None = None
        self.closed = False
        self.reading = True  # gives back the windows of what it reads
        self.machine.initiate_connection()
        if settings:
            self.machine.update_settings({int(k.lstrip("_")): v for k, v in settings.items()})
        self.flush()

    def flush(self) -> None:
        self.socket.sendall(self.machine.data_to_send())

    def raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(
        self,
        method: str,
        path: str,
        *,
        key: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        body: bytes | None = None,
        end: bool = True,
    ) -> int:
        """Send a head, and a body that fits the windows; return the stream."""
        stream_id = self.machine.get_next_available_stream_id()
        fields = [
            (":method", method),
            (":scheme", "https"),
            (":authority", "gateway"),
            (":path", path),
        ]
        if key is not None:
            fields.append(("authorization", f"Bearer {key}"))
        if body is not None:
            fields += [("content-type", "application/json"), ("content-length", str(len(body)))]
        fields += headers
        self.machine.send_headers(stream_id, fields, end_stream=end and body is None)
        if body is not None:
            for at in range(0, len(body), 16_384):
                self.machine.send_data(stream_id, body[at : at + 16_384])
            if end:
                self.machine.end_stream(stream_id)
        self.flush()
        return stream_id

    def step(self) -> bool:
        """Take what comes next; False at the end of the connection."""
        try:
            data = self.socket.recv(65_536)
        except ConnectionError:
            data = b""
        if not data:
            self.closed = True
            return False
        for event in self._events(data):
            if isinstance(event, ResponseReceived):
                self.heads[event.stream_id] = list(event.headers)
                self.bodies.setdefault(event.stream_id, bytearray())
            elif isinstance(event, InformationalResponseReceived):
                self.interim.append(int(dict(event.headers)[":status"]))
            elif isinstance(event, DataReceived):
                self.bodies[event.stream_id] += event.data
                if self.reading:
                    size = event.flow_controlled_length
                    self.machine.acknowledge_received_data(size, event.stream_id)
            elif isinstance(event, StreamEnded):
                self.ended.add(event.stream_id)
            elif isinstance(event, StreamReset):
                self.resets[event.stream_id] = int(event.error_code)
            elif isinstance(event, ConnectionTerminated):
                self.goaway = int(event.error_code)
                if self.goaway == 0:  # what is under way goes on, which h2 does not know
                    self.machine.state_machine.state = ConnectionState.CLIENT_OPEN
        if not self.goaway:
            self.flush()
        return True

    def _events(self, data: bytes) -> list[Any]:
        try:
            return self.machine.receive_data(data)
        except ProtocolError:  # of a stream that we ourselves have undone, or after a GOAWAY
            return []

    def answer(self, stream_id: int) -> Answer:
        while stream_id not in self.ended:
            assert stream_id not in self.resets, self.resets
            assert self.step(), "the connection ended before the answer"
        headers = self.heads[stream_id]
        fields = [(name, value) for name, value in headers if not name.startswith(":")]
        status = int(dict(headers)[":status"])
        return Answer(status, fields, bytes(self.bodies[stream_id]), self.resets.get(stream_id))

    def call(self, method: str, path: str, **options: Any) -> Answer:
        return self.answer(self.request(method, path, **options))

    def until_reset(self, stream_id: int) -> int:
        while stream_id not in self.resets:
            assert self.step(), "the connection ended before the reset"
        return self.resets[stream_id]

    def until_closed(self) -> int | None:
        """Return the code of the GOAWAY that came before the end."""
        while self.step():
            pass
        return self.goaway

    def close(self) -> None:
        self.socket.close()
