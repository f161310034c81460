"""A server whose store cannot be written says so, and takes work again when it can."""

import resource
import time
from collections.abc import Callable
from typing import Any

import pytest

Server = Callable[..., Any]
KEY = "a-key-of-acme-for-tests"  # as in conftest
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
    assert (status, body["error"]["code"]) == (500, "internal_error"), running.log
    assert body["error"]["retryable"] is True
    assert answer_of(running, "/readyz", 503)["error"]["code"] == "storage_unavailable"
    assert running.call("GET", "/v1/status")[1]["storage_ready"] is False
    assert running.call("GET", "/healthz")[0] == 200
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    assert answer_of(running, "/readyz", 200) == {"ok": True}
    assert running.call("POST", "/v1/jobs", JOB)[0] == 201
    assert running.stop() == 0


def test_u9_a_tenant_over_its_quota_is_refused_and_another_is_not(server: Server) -> None:
    running = server(STORAGE_TENANT_MB="64", ATTESTATION_MODE="off").start()
    wait = {"language": "bash", "code": "sleep 30", "limits": {"wall_seconds": 40}}
    status, first = running.call("POST", "/v1/jobs", wait)
    assert status == 201
    status, body, headers = running.exchange("POST", "/v1/jobs", JOB, **{"Idempotency-Key": "k"})
    assert (status, headers["Retry-After"]) == (429, "1")
    assert (body["error"]["code"], body["error"]["retryable"]) == ("tenant_storage_quota", True)
    assert "64.0 MiB" in body["error"]["message"]
    assert running.call("POST", "/v1/jobs", JOB, key=f"{KEY}-other")[0] == 201
    assert running.call("DELETE", f"/v1/jobs/{first['job_id']}")[0] == 200
    assert running.call("GET", f"/v1/jobs/{first['job_id']}/result?wait_seconds=30")[0] == 200
    end = time.monotonic() + 30  # its reserve goes once nobody is going to sign it
    while (answer := running.exchange("POST", "/v1/jobs", JOB, **{"Idempotency-Key": "k"}))[
        0
    ] != 201:
        assert time.monotonic() < end, answer
        time.sleep(0.05)
    assert answer[2]["Idempotency-Replayed"] == "false"
    assert len(running.call("GET", "/v1/jobs")[1]["items"]) == 2
    assert running.stop() == 0


def test_the_quota_of_all_tenants_is_the_servers_own_state(server: Server) -> None:
    running = server(STORAGE_TENANT_MB="128", STORAGE_GLOBAL_MB="128").start()
    wait = {"language": "bash", "code": "sleep 30", "limits": {"wall_seconds": 40}}
    for _ in range(3):
        assert running.call("POST", "/v1/jobs", wait)[0] == 201
    status, body, headers = running.exchange("POST", "/v1/jobs", JOB, key=f"{KEY}-other")
    assert (status, body["error"]["code"], headers["Retry-After"]) == (503, "storage_capacity", "1")
    assert body["error"]["retryable"] is True
    assert running.stop() == 0


def test_a_disk_that_is_to_stay_free_refuses_jobs_and_nothing_else(server: Server) -> None:
    first = server().start()
    status, job = first.call("POST", "/v1/jobs", {"language": "bash", "code": "sleep 30"})
    assert status == 201
    first.popen.kill()
    first.ended()
    running = server(STORAGE_FREE_RESERVE_MB="1048576").start()  # a TiB: no host of tests has it
    assert "no job will be accepted" in running.log
    status, body, headers = running.exchange("POST", "/v1/jobs", JOB)
    assert (status, body["error"]["code"], headers["Retry-After"]) == (507, "storage_reserve", "1")
    assert body["error"]["retryable"] is True
    assert "ROOKHOLD_STORAGE_FREE_RESERVE_MB" in body["error"]["message"]
    assert running.call("GET", "/readyz") == (200, {"ok": True})
    assert running.call("GET", "/v1/status")[1]["storage_ready"] is True
    detail = running.call("GET", f"/v1/jobs/{job['job_id']}")[1]
    assert detail["status"] in ("error", "queued", "running", "succeeded", "timed_out")
    assert len(running.call("GET", "/v1/jobs")[1]["items"]) == 1
    assert running.stop() == 0


def test_one_server_at_a_time_has_a_database(server: Server) -> None:
    first, second = server().start(), server()
    assert second.run() != 0
    assert "database_locked" in second.log
    assert first.call("POST", "/v1/jobs", JOB)[0] == 201
    first.popen.kill()
    first.ended()
    second.start()
    assert len(second.call("GET", "/v1/jobs")[1]["items"]) == 1
    assert second.stop() == 0


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_nothing_is_accepted_into_a_database_that_was_moved_away(
    server: Server, suffix: str
) -> None:
    running = server().start()
    assert running.call("POST", "/v1/jobs", JOB)[0] == 201
    [database] = running.home.rglob("rookhold.db")
    file = database.with_name(database.name + suffix)
    file.rename(file.with_name("aside"))
    status, body = running.call("POST", "/v1/jobs", JOB)
    assert (status, body["error"]["retryable"]) == (500, True), running.log
    assert answer_of(running, "/readyz", 503)["error"]["code"] == "storage_unavailable"
    file.with_name("aside").rename(file)
    assert answer_of(running, "/readyz", 200) == {"ok": True}
    assert running.call("POST", "/v1/jobs", JOB)[0] == 201
    assert running.stop() == 0
