"""What a durable accept costs: `POST /v1/jobs` at rest, and while every slot is taken."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the client is on an asyncio loop
from typing import TYPE_CHECKING

from benchmarks import storing
from benchmarks.figures import median, percentile, ratio
from benchmarks.http import Connection
from benchmarks.servers import QUEUE, gateway

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from benchmarks.figures import Book
    from benchmarks.servers import Served
    from benchmarks.sizes import Sizes

WORKERS = 2
OTHERS = 2  # clients that keep the server's loop busy
_HELLO = {"language": "bash", "code": "echo hello"}
_LIMITS = {"wall_seconds": 120, "cpu_seconds": 120}
# Slots full of jobs that wait leave the processors free; full of jobs that compute, they do not.
_FILLERS: dict[str, dict[str, object]] = {
    "slots full, waiting": {"language": "bash", "code": "sleep 100", "limits": _LIMITS},
    "slots full, computing": {"language": "bash", "code": "while :; do :; done", "limits": _LIMITS},
}


async def measure(book: Book, sizes: Sizes, place: Path) -> None:
    table = book.table(
        "Durable accept",
        "ms of POST /v1/jobs, answered after the commit; one client",
        "when",
        "p50 ms",
        "p95 ms",
        "p50 x trivial request + bare commit",
    )
    with (
        gateway(place / "accepting", ROOKHOLD_WORKERS=str(WORKERS)) as served,
        storing.BareCommits(place / "commit.db") as bare_commits,
    ):
        async with Connection(served.address, served.api_key) as connection:
            await _pass(connection, 5)
            trivial, taken = await _idle(connection, sizes, bare_commits)
            for name, filler in _FILLERS.items():
                taken[name] = await _full(served, connection, filler, sizes)
            async with asyncio.TaskGroup() as tasks:
                others = [tasks.create_task(_ask_on(served)) for _ in range(OTHERS)]
                taken["loop busy"] = await _full(
                    served, connection, _FILLERS["slots full, waiting"], sizes
                )
                for other in others:
                    other.cancel()
    floor = book.put("accept.floor_ms", median(trivial))
    table.add("a trivial request and a bare commit", floor, percentile(trivial, 0.95), "1.00x")
    for name, times in taken.items():
        p50 = book.put(f"accept.{name}.p50_ms", median(times))
        p95 = book.put(f"accept.{name}.p95_ms", percentile(times, 0.95))
        table.add(name, p50, p95, ratio(p50, floor))


async def _timed(work: Callable[[], Awaitable[object]]) -> float:
    clock = asyncio.get_running_loop().time
    began = clock()
    await work()
    return (clock() - began) * 1000


async def _pass(connection: Connection, jobs: int) -> None:
    for _ in range(jobs):
        await _ended(connection, await _submit(connection))


async def _submit(connection: Connection) -> str:
    answer = await connection.ask(201, "POST", "/v1/jobs", _HELLO)
    return str(answer["job_id"])


async def _ended(connection: Connection, job_id: str) -> None:
    await connection.ask(200, "GET", f"/v1/jobs/{job_id}/result?wait_seconds=60")


async def _idle(
    connection: Connection, sizes: Sizes, bare_commits: storing.BareCommits
) -> tuple[list[float], dict[str, list[float]]]:
    """Each accept finds the server at rest: the job before it is over.

    Before it, the least that it could be is measured: a request that does nothing, and a commit.
    """
    floor, times = [], []
    for _ in range(sizes.accept_jobs):
        await asyncio.sleep(sizes.launch_pause_seconds)
        least = await _timed(lambda: connection.request("GET", "/healthz"))
        floor.append(least + bare_commits.one())
        await asyncio.sleep(sizes.launch_pause_seconds)
        job = ""

        async def submit() -> None:
            nonlocal job
            job = await _submit(connection)

        times.append(await _timed(submit))
        await _ended(connection, job)
    return floor, {"idle": times}


async def _full(
    served: Served, connection: Connection, filler: dict[str, object], sizes: Sizes
) -> list[float]:
    fillers = [
        (await connection.ask(201, "POST", "/v1/jobs", filler))["job_id"] for _ in range(WORKERS)
    ]
    while await _running(connection) < WORKERS:  # noqa: ASYNC110 - another process tells
        await asyncio.sleep(0.01)
    times = []
    queued: list[str] = []

    async def submit() -> None:
        queued.append(await _submit(connection))

    for _ in range(min(sizes.accept_jobs, QUEUE - WORKERS)):
        await asyncio.sleep(sizes.launch_pause_seconds)
        times.append(await _timed(submit))
    async with Connection(served.address, served.api_key) as other:
        for job_id in [*queued, *fillers]:
            await other.ask(200, "DELETE", f"/v1/jobs/{job_id}")
        for job_id in fillers:
            await _ended(other, job_id)
    return times


async def _ask_on(served: Served) -> None:
    """Keep the server's loop busy: one request after another, each with some work in it."""
    async with Connection(served.address, served.api_key) as connection:
        while True:
            await connection.ask(200, "GET", "/v1/jobs?limit=20")


async def _running(connection: Connection) -> int:
    return int((await connection.ask(200, "GET", "/v1/status"))["scheduler"]["running"])
