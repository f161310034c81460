"""FR-17: clients that stop reading a live stream cost neither memory nor anybody's time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gateway import eventually
from streams import WebSocket

if TYPE_CHECKING:
    from reports.site import Site

STUCK = 15  # one tenant may have sixteen streams
PER_CLIENT_KIB = 1024
FLOOD = """
import os, time
time.sleep(1)
lines = (b"x" * 4000 + b"\\n") * 250
for _ in range(ROUNDS):
    for stream in (1, 2):
        left = memoryview(lines)
        while left:
            left = left[os.write(stream, left):]
"""
ROUNDS = 100  # 200 MB in all
EMULATED_ROUNDS = 10  # where all of it runs on a processor that is emulated
LIMITS = {"wall_seconds": 120, "cpu_seconds": 100}


def open_stream(site: Site, job_id: str, *, window: int | None = None) -> WebSocket:
    key = {"Authorization": f"Bearer {site.gateway.api_key}"}
    stream = WebSocket(site.gateway.address, f"/v1/jobs/{job_id}/stream", key, window=window)
    assert stream.status == 101
    return stream


def test_clients_that_stop_reading_are_dropped_and_slow_nobody(sandbox: Site) -> None:
    slow = sandbox.backend is not None and sandbox.backend.name == "namespaces"
    flood = f"ROUNDS = {EMULATED_ROUNDS if slow else ROUNDS}\n{FLOOD}"
    alone = sandbox.run("python", flood, limits=LIMITS)
    assert alone.result.status == "succeeded"
    before = sandbox.memory_kib()

    began = time.monotonic()
    job_id = sandbox.submit("python", flood, limits=LIMITS)
    stuck = [open_stream(sandbox, job_id, window=4096) for _ in range(STUCK)]
    normal = open_stream(sandbox, job_id)
    events = normal.events()
    beside = sandbox.finish(job_id, began)

    assert normal.closed_with is None
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert len(events) == len(sandbox.events(job_id))
    assert beside.result.status == "succeeded"
    assert beside.result.stdout_bytes == alone.result.stdout_bytes
    assert beside.receipt["output"] == alone.receipt["output"]
    assert beside.receipt["duration_ms"] < 3 * alone.receipt["duration_ms"] + 5000
    assert sandbox.memory_kib() - before < STUCK * PER_CLIENT_KIB + 32 * 1024

    # They go by themselves, although none of them has read or closed anything.
    key = {"Authorization": f"Bearer {sandbox.gateway.api_key}"}

    def places_are_free() -> bool:
        streams = [
            WebSocket(sandbox.gateway.address, f"/v1/jobs/{job_id}/stream", key) for _ in range(16)
        ]
        for stream in streams:
            stream.close()
        return all(stream.status == 101 for stream in streams)

    assert eventually(60, places_are_free)
    for stream in (*stuck, normal):
        stream.close()
