"""FR-16: a client that asks and does not read holds no reader of the database; its log is small.

About the store, which no backend has a part in: one is enough. It is a gateway of its own, since
it is killed.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import apsw
import pytest
from gateway import Gateway
from invariants import problems
from isolating import NAMESPACES_DEV
from reports.site import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = list(NAMESPACES_DEV.marks)
MIB = 1 << 20
BOUND = 48 * MIB  # from 16 MiB on the writer insists; the largest commit may come on top
KEPT = 16 * MIB  # what an emptied log may go on to occupy
JOBS, SMALL_BOUND = 120, 12 * MIB
SOAK_JOBS = 5000
START_SECONDS = 30


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path / "home", sandbox=NAMESPACES_DEV.name, **SETTINGS) as gateway:
        yield gateway


def log_bytes(gateway: Gateway) -> int:
    return gateway.database.with_name(gateway.database.name + "-wal").stat().st_size


@contextmanager
def unread(gateway: Gateway, path: str) -> Iterator[socket.socket]:
    """Ask for something large and take only the first bytes of the answer."""
    host, _, port = gateway.address.rpartition(":")
    with socket.socket() as asking:
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        asking.settimeout(60)
        asking.connect((host, int(port)))
        headers = f"Host: {gateway.address}\r\nAuthorization: Bearer {gateway.api_key}\r\n"
        asking.sendall(f"GET {path} HTTP/1.1\r\n{headers}\r\n".encode())
        assert asking.recv(12) == b"HTTP/1.1 200"
        yield asking


def run_jobs(gateway: Gateway, count: int) -> int:
    """Run that many tiny jobs, some at a time; return the largest size that the log had."""
    largest = 0
    with gateway.client() as client:
        for first in range(0, count, 32):
            limits = {"mem_mb": 32}
            more = range(first, min(first + 32, count))
            jobs = [client.submit("bash", "echo tiny", limits=limits).job_id for _ in more]
            for job_id in jobs:
                assert client.wait(job_id, 60).status == "succeeded"
                largest = max(largest, log_bytes(gateway))
    return largest


def cancel(gateway: Gateway, job_id: str) -> None:
    with gateway.client() as client:
        client.cancel(job_id)


def readers(gateway: Gateway) -> ExitStack:
    """Hold a history, a list and a result, none read to its end, and a stream without news."""
    with gateway.client() as client:
        flood = "import sys; sys.stdout.write('line\\n' * 9000)"
        job_id = client.submit("python", flood).job_id
        assert client.wait(job_id, 60).status == "succeeded"
        quiet = client.submit("bash", "sleep 280", limits={"wall_seconds": 300}).job_id
    held = ExitStack()
    held.callback(cancel, gateway, quiet)
    held.enter_context(unread(gateway, f"/v1/jobs/{quiet}/events"))
    for path in (f"/v1/jobs/{job_id}/replay?after=0&limit=5000", f"/v1/jobs/{job_id}/result"):
        for _ in range(2):
            held.enter_context(unread(gateway, path))
    held.enter_context(unread(gateway, "/v1/jobs?limit=500"))
    return held


def run_burst(gateway: Gateway, jobs: int, bound: int) -> None:
    with readers(gateway):
        during = run_jobs(gateway, jobs)
        print(f"{jobs} jobs: the log had up to {during} bytes")
        assert during <= bound, f"{during} bytes while clients hold their answers"
    assert run_jobs(gateway, 32) <= bound
    gateway.kill()
    began = time.monotonic()
    gateway.start()
    assert time.monotonic() - began < START_SECONDS
    assert log_bytes(gateway) <= bound
    run_jobs(gateway, 2)
    assert gateway.stop() == 0
    assert problems(gateway.database, []) == []


def test_a_burst_beside_clients_that_do_not_read_leaves_a_small_log(gateway: Gateway) -> None:
    run_burst(gateway, JOBS, SMALL_BOUND)


def test_a_reader_that_holds_on_is_told_and_the_log_is_cut_once_it_goes(gateway: Gateway) -> None:
    """Without it, a log that never grows for another reason would pass the test before."""
    reader = apsw.Connection(str(gateway.database), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN; SELECT count(*) FROM jobs").fetchall()
    try:
        size = run_jobs(gateway, JOBS)
    finally:
        reader.close()
    print(f"beside a reader that holds on, {size} bytes")
    assert size > KEPT
    assert "holds on to an old view" in gateway.log.read_text("utf-8")
    deadline = time.monotonic() + START_SECONDS
    while log_bytes(gateway) > KEPT:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.soak
def test_five_thousand_jobs_beside_clients_that_do_not_read_leave_a_small_log(
    gateway: Gateway,
) -> None:
    run_burst(gateway, SOAK_JOBS, BOUND)
