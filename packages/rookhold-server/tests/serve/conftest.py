"""The server as a process of its own, with a real store and a real executor."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from streams import EventSource, RawAnswer, WebSocket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

START_SECONDS = 60
KEY = "a-key-of-acme-for-tests"


class Process:
    """`python -m rookhold_server` with nothing of our environment but what a test names."""

    def __init__(self, home: Path, settings: dict[str, str]) -> None:
        self.home = home
        self.log_file = home.parent / "log"
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "ROOKHOLD_ADDR": "127.0.0.1:0",
            "ROOKHOLD_SANDBOX": "off",
            "ROOKHOLD_STORAGE_FREE_RESERVE_MB": "0",  # a host of tests may have less free
            "ROOKHOLD_API_KEYS": f"acme:{KEY},other:{KEY}-other",
            **settings,
        }
        self.address = ""
        self.user: int | None = None  # ours
        self.lifeline = -1
        self.popen: subprocess.Popen[bytes] | None = None

    def run(self, *arguments: str) -> int:
        """Run one that is expected to give up, to its end."""
        with self.log_file.open("wb") as log:
            return subprocess.run(
                [sys.executable, "-m", "rookhold_server", *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                timeout=START_SECONDS,
                check=False,
            ).returncode

    def spawn(self) -> int:
        """Start it and do not wait; returns the descriptor on which it will tell its address."""
        ready, told = os.pipe()
        watched, self.lifeline = os.pipe()
        environment = self.environment | {
            "ROOKHOLD_READY_FD": str(told),
            "ROOKHOLD_LIFELINE_FD": str(watched),
        }
        with self.log_file.open("ab") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "rookhold_server"],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                pass_fds=(told, watched),
                user=self.user,
                group=self.user,
                extra_groups=None if self.user is None else [],
            )
        os.close(told)
        os.close(watched)
        return ready

    def start(self) -> Process:
        with os.fdopen(self.spawn(), "rb") as pipe:
            line = pipe.read()  # to the end: the server closes it
        assert line.endswith(b"\n"), f"it did not start:\n{self.log}"
        self.address = json.loads(line)["address"]
        return self

    @property
    def log(self) -> str:
        return self.log_file.read_text("utf-8")

    def signal(self, number: int) -> None:
        assert self.popen is not None
        self.popen.send_signal(number)

    def ended(self, seconds: float = 60) -> int:
        assert self.popen is not None
        return self.popen.wait(seconds)

    def stop(self) -> int:
        self.signal(signal.SIGTERM)
        return self.ended()

    def cut_lifeline(self) -> None:
        os.close(self.lifeline)
        self.lifeline = -1

    def call(
        self, method: str, path: str, spec: object = None, *, key: str = KEY, **headers: str
    ) -> tuple[int, Any]:
        status, body, _ = self.exchange(method, path, spec, key=key, **headers)
        return status, body

    def exchange(
        self, method: str, path: str, spec: object = None, *, key: str = KEY, **headers: str
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            sent = {"Authorization": f"Bearer {key}", **headers}
            body = None
            if spec is not None:
                sent["Content-Type"] = "application/json"
                body = json.dumps(spec)
            connection.request(method, path, body=body, headers=sent)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read()), answer.headers
        finally:
            connection.close()

    def close(self) -> None:
        if self.lifeline >= 0:
            self.cut_lifeline()
        if self.popen is not None and self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(60)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
                raise


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Prepare a server with some settings; each test's servers share one home."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with ExitStack() as stack:

        def prepare(**settings: str) -> Process:
            named = {f"ROOKHOLD_{name}": text for name, text in settings.items()}
            process = Process(home, named)
            stack.callback(process.close)
            return process

        yield prepare


class Site:
    """A running server, and streams of its jobs."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._open: list[RawAnswer] = []

    def submit(self, code: str, *, language: str = "bash", outputs: list[str] | None = None) -> str:
        spec = {
            "language": language,
            "code": code,
            "limits": {"wall_seconds": 60},
            "outputs": outputs or [],
        }
        status, job = self.process.call("POST", "/v1/jobs", spec)
        assert status == 201, job
        job_id: str = job["job_id"]
        return job_id

    def ticket(self, job_id: str, *, key: str = KEY) -> dict[str, Any]:
        status, ticket = self.process.call("POST", f"/v1/jobs/{job_id}/stream-ticket", key=key)
        assert status == 200, ticket
        answer: dict[str, Any] = ticket
        return answer

    def replay(self, job_id: str) -> list[dict[str, Any]]:
        page = self.process.call("GET", f"/v1/jobs/{job_id}/replay?limit=5000")[1]
        events: list[dict[str, Any]] = page["events"]
        return events

    def await_end(self, job_id: str) -> None:
        status, _ = self.process.call("GET", f"/v1/jobs/{job_id}/result?wait_seconds=60")
        assert status == 200

    def websocket(self, path: str, *, key: str | None = KEY, **headers: str) -> WebSocket:
        given = {} if key is None else {"Authorization": f"Bearer {key}"}
        return self._kept(WebSocket(self.process.address, path, given | headers))

    def stream(self, job_id: str, query: str = "") -> WebSocket:
        return self.websocket(f"/v1/jobs/{job_id}/stream{query}")

    def plain(self, path: str, *, key: str | None = KEY, **headers: str) -> RawAnswer:
        given = {} if key is None else {"Authorization": f"Bearer {key}"}
        return self._kept(RawAnswer(self.process.address, path, given | headers))

    def events(
        self, job_id: str, query: str = "", *, key: str | None = KEY, **headers: str
    ) -> EventSource:
        given = {} if key is None else {"Authorization": f"Bearer {key}"}
        path = f"/v1/jobs/{job_id}/events{query}"
        return self._kept(EventSource(self.process.address, path, given | headers))

    def _kept(self, answer: Any) -> Any:
        self._open.append(answer)
        return answer

    def close(self) -> None:
        for answer in self._open:
            answer.close()


@pytest.fixture
def site(server: Callable[..., Process]) -> Iterator[Site]:
    opened = Site(server().start())
    yield opened
    opened.close()
