"""A gateway that speaks the contract by script, so that it can also misbehave on cue."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rookhold import Rookhold

API_KEY = "scripted-gateway-key"


@dataclass
class Seen:
    """One request as it arrived; `connection` tells connections apart."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int


Step = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ScriptedServer

    def do(self) -> None:
        length = int(self.headers.get("content-length", "0"))
        body = self.rfile.read(length)
        headers = {name.lower(): text for name, text in self.headers.items()}
        scripted = self.server.scripted
        with scripted.lock:
            scripted.seen.append(
                Seen(self.command, self.path, headers, body, self.client_address[1])
            )
            step = scripted.steps.pop(0)
        step(self)

    do_GET = do_POST = do_DELETE = do  # noqa: N815 - http.server's own names

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(content)

    def drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


class ScriptedServer(ThreadingHTTPServer):
    daemon_threads = True
    scripted: Scripted


@dataclass
class Scripted:
    """Answers each request with the next step, in order."""

    steps: list[Step] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    base_url: str = ""
    over: threading.Event = field(default_factory=threading.Event)

    def then(self, value: Any, status: int = 200, **headers: str) -> Scripted:
        """Answer with JSON, or with bytes as they are."""
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        self.steps.append(lambda handler: handler.answer(status, content, named))
        return self

    def then_refuse(
        self, status: int, code: str, *, retryable: bool = False, **headers: str
    ) -> Any:
        error = {"code": code, "message": "no", "request_id": "r-1", "retryable": retryable}
        return self.then({"error": error}, status, **headers)

    def then_drop(self) -> Scripted:
        self.steps.append(lambda handler: handler.drop())
        return self

    def then_cut_short(self) -> Scripted:
        def step(handler: Handler) -> None:
            handler.send_response(200)
            handler.send_header("content-length", "1000")
            handler.end_headers()
            handler.wfile.write(b'{"ok":')
            handler.wfile.flush()
            handler.drop()

        self.steps.append(step)
        return self

    def then_trickle(self) -> Scripted:
        """Send a byte now and then, for ever: each read succeeds, the answer never ends."""

        def step(handler: Handler) -> None:
            handler.send_response(200)
            handler.send_header("content-length", "100000")
            handler.end_headers()
            handler.close_connection = True
            while not self.over.wait(0.05):
                try:
                    handler.wfile.write(b" ")
                except OSError:
                    return

        self.steps.append(step)
        return self

    def then_stall(self) -> Scripted:
        def step(handler: Handler) -> None:
            self.over.wait(60)
            handler.close_connection = True

        self.steps.append(step)
        return self

    def client(self, **options: Any) -> Rookhold:
        return Rookhold(self.base_url, API_KEY, **options)


@pytest.fixture
def gateway() -> Iterator[Scripted]:
    scripted = Scripted()
    server = ScriptedServer(("127.0.0.1", 0), Handler)
    server.scripted = scripted
    scripted.base_url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield scripted
    finally:
        scripted.over.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture(autouse=True)
def _no_gateway_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROOKHOLD_BASE_URL", raising=False)
    monkeypatch.delenv("ROOKHOLD_API_KEY", raising=False)
