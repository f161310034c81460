"""Memory at rest: every process of a server, as PSS, so that shared pages count once."""

from __future__ import annotations

import asyncio  # noqa: TID251 - a little load from an asyncio client
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import bubblewrap
from benchmarks.http import Connection
from benchmarks.servers import baseline, gateway

if TYPE_CHECKING:
    from benchmarks.figures import Book
    from benchmarks.servers import Served
    from benchmarks.sizes import Sizes

JOBS = 50
_SPEC = {"language": "bash", "code": "echo hello"}


async def measure(book: Book, sizes: Sizes, place: Path) -> None:
    table = book.table(
        "Memory at rest",
        "MiB of PSS (shared pages divided among those who share them)",
        "server",
        "when",
        "processes",
        "PSS MiB",
        "largest",
    )
    jobs = min(JOBS, sizes.accept_jobs)
    with gateway(place / "memory") as served:
        await asyncio.sleep(sizes.settle_seconds)
        _row(book, table.add, "rookhold", "just started", served)
        async with Connection(served.address, served.api_key) as connection:
            for _ in range(jobs):
                job = (await connection.ask(201, "POST", "/v1/jobs", _SPEC))["job_id"]
                await connection.ask(200, "GET", f"/v1/jobs/{job}/result?wait_seconds=60")
        await asyncio.sleep(sizes.settle_seconds)
        _row(book, table.add, "rookhold", f"after {jobs} jobs", served, key="after")
    if bubblewrap.find() is None:
        return
    with baseline() as served:
        async with Connection(served.address) as connection:
            for _ in range(jobs):
                await connection.ask(200, "POST", "/run", _SPEC)
        await asyncio.sleep(sizes.settle_seconds)
        _row(book, table.add, "baseline", f"after {jobs} jobs", served, key="after")


def _row(
    book: Book, add: object, server: str, when: str, served: Served, *, key: str = "fresh"
) -> None:
    sizes = {pid: pss_mib(pid) for pid in family(served.pid)}
    total = book.put(f"memory.{server}.{key}_mib", sum(sizes.values()))
    add(server, when, str(len(sizes)), total, max(sizes.values()))  # type: ignore[operator]


def pss_mib(pid: int) -> float:
    """Return the proportional set size of one process; 0 for one that has just ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) / 1024


def family(root: int) -> list[int]:
    """Return `root` and every process below it."""
    found = [root]
    for pid in found:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text("ascii").split()]
    return found
