"""HTTP as a test speaks it: whole answers over one connection, or bytes where bytes matter."""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

SECONDS = 60


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of an error, whose envelope is as every one must be."""
        assert set(self.json) == {"error"}, self.body
        error = self.json["error"]
        assert set(error) == {"code", "message", "request_id", "retryable"}
        assert error["request_id"] == self.headers["x-request-id"]
        assert self.headers["content-type"] == "application/json"
        code: str = error["code"]
        return code

    @property
    def refusal(self) -> tuple[int, str]:
        return self.status, self.code


class Caller:
    """One tenant's key and one connection, which is made again where the server ended it."""

    def __init__(self, address: str, key: str) -> None:
        self.key = key
        self._connection = http.client.HTTPConnection(address, timeout=SECONDS)

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        sent = {"Authorization": f"Bearer {self.key}", **(headers or {})}
        if body is not None:
            sent = {"Content-Type": "application/json", **sent}
        self._connection.request(method, path, body=body, headers=sent)
        got = self._connection.getresponse()
        fields = {name.lower(): value for name, value in got.getheaders()}
        return Answer(got.status, fields, got.read())

    def get(self, path: str) -> Answer:
        return self.call("GET", path)

    def submit(self, spec: object, headers: Mapping[str, str] | None = None) -> Answer:
        return self.call("POST", "/v1/jobs", json.dumps(spec).encode(), headers)

    def accepted(self, language: str, code: str, **more: Any) -> str:
        """Submit what must be taken, and return the id."""
        answer = self.submit({"language": language, "code": code, **more})
        assert answer.status == 201, answer.body
        job_id: str = answer.json["job_id"]
        return job_id

    def result(self, job_id: str, wait_seconds: int = 60) -> Answer:
        return self.get(f"/v1/jobs/{job_id}/result?wait_seconds={wait_seconds}")

    def ran(self, language: str, code: str, **more: Any) -> Ran:
        """Submit a job and wait for its end."""
        job_id = self.accepted(language, code, **more)
        answer = self.result(job_id)
        assert answer.status == 200, answer.body
        return Ran(job_id, answer.json, self.get(f"/v1/jobs/{job_id}").json)

    def job_ids(self) -> set[str]:
        return {row["job_id"] for row in self.get("/v1/jobs?limit=500").json["items"]}

    def events(self, job_id: str) -> list[dict[str, Any]]:
        page = self.get(f"/v1/jobs/{job_id}/replay?limit=5000").json
        events: list[dict[str, Any]] = page["events"]
        return events

    def begun(self, job_id: str) -> None:
        """Wait until the job has printed something."""
        end = time.monotonic() + SECONDS
        while not any(event["kind"] == "stdout" for event in self.events(job_id)):
            assert time.monotonic() < end, "the job prints nothing"
            time.sleep(0.02)

    def close(self) -> None:
        self._connection.close()


class Ran(NamedTuple):
    """A job at its end."""

    job_id: str
    result: dict[str, Any]
    detail: dict[str, Any]

    @property
    def receipt(self) -> dict[str, Any]:
        receipt: dict[str, Any] = self.detail["receipt"]
        return receipt

    @property
    def ended(self) -> tuple[str, int | None, str | None]:
        return self.result["status"], self.result["exit_code"], self.receipt["killed_by"]


class Line:
    """One connection, spoken to in bytes."""

    def __init__(self, address: str, *, window: int | None = None) -> None:
        """`window` bounds the bytes that our kernel takes before somebody reads them."""
        host, port = address.rsplit(":", 1)
        self.socket = socket.socket()
        self.socket.settimeout(SECONDS)
        if window is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
        self.socket.connect((host, int(port)))
        self.buffer = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def request(self, method: str, path: str, key: str, *fields: str, body: bytes = b"") -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: gateway", f"authorization: Bearer {key}"]
        self.send("\r\n".join([*lines, *fields, "", ""]).encode() + body)

    def head(self) -> tuple[int, dict[str, str]]:
        while b"\r\n\r\n" not in self.buffer:
            self._take()
        head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    def answer(self) -> Answer:
        status, headers = self.head()
        length = int(headers["content-length"])
        while len(self.buffer) < length:
            self._take()
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return Answer(status, headers, body)

    def _take(self) -> None:
        piece = self.socket.recv(1 << 20)
        assert piece, "the connection ended in an answer"
        self.buffer += piece

    def close(self) -> None:
        self.socket.close()
