"""A server whose store cannot be written says so, and takes work again when it can."""

import resource
import time
from collections.abc import Callable
from typing import Any

import pytest

Server = Callable[..., Any]
JOB = {"language": "bash", "code": "echo"}


def answer_of(running: Any, path: str, wanted: int) -> Any:
    """Ask until it answers `wanted`; the probe comes every two seconds."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        status, body = running.call("GET", path)
        if status == wanted:
            return body
        time.sleep(0.05)
    pytest.fail(f"{path} never answered {wanted}")


def test_a_store_that_cannot_write_is_not_ready_until_it_can(server: Server) -> None:
    running = server().start()
    pid = running.popen.pid
    assert running.call("POST", "/v1/jobs", JOB)[0] == 201
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    # No file may grow, as where the disk is full; what is there can still be read.
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, before[1]))
    status, body = running.call("POST", "/v1/jobs", JOB)
    assert (status, body["error"]["retryable"]) == (500, True)
    assert answer_of(running, "/readyz", 503)["error"]["code"] == "storage_unavailable"
    assert running.call("GET", "/v1/status")[1]["storage_ready"] is False
    assert running.call("GET", "/healthz")[0] == 200
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    assert answer_of(running, "/readyz", 200) == {"ok": True}
    assert running.call("POST", "/v1/jobs", JOB)[0] == 201
    assert running.stop() == 0
