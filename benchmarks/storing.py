"""What the store's operations cost, beside one bare durable commit of the same SQLite."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import apsw

from benchmarks.figures import median, ratio
from rookhold_store import Store
from rookhold_store.operations import Append
from rookhold_store.testing import Jobs, TickingClock, anything_binds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.figures import Book
    from benchmarks.sizes import Sizes

BATCHES = (1, 64, 254)
TOGETHER = 32  # accepts that arrive at once and share commits


def measure(book: Book, sizes: Sizes, place: Path) -> None:
    """Fill the table; all operations of one job take turns with those of the next."""
    bare = median(bare_commit(place / "bare.db", sizes.store_rounds))
    times: dict[str, list[float]] = {}
    with Store.open(
        place / "store.db", binding=anything_binds, clock=TickingClock(1_700_000_000_000)
    ) as store:
        for _ in range(sizes.store_rounds):
            _one_life(Jobs(store), times)
        for _ in range(max(3, sizes.store_rounds // 10)):
            _together(Jobs(store), times)
    table = book.table(
        "Store",
        "ms until the commit is on the disk (reads: until the rows are here), medians",
        "operation",
        "ms",
        "x bare commit",
    )
    table.add("bare: one row in WAL mode, synchronous FULL", book.put("store.bare", bare), "1.00x")
    for name, taken in times.items():
        table.add(name, book.put(f"store.{name}", median(taken)), ratio(median(taken), bare))


def bare_commit(path: Path, rounds: int) -> list[float]:
    """Return the milliseconds of single durable inserts, made as the store makes its own."""
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "wal")
    db.execute("PRAGMA synchronous = FULL; CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT) STRICT")
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        db.execute("INSERT INTO t (b) VALUES (?)", ("x" * 200,))
        times.append((time.perf_counter() - began) * 1000)
    db.close()
    return times


def _one_life(jobs: Jobs, times: dict[str, list[float]]) -> None:
    def timed(name: str, work: Callable[[], object]) -> None:
        began = time.perf_counter()
        work()
        times.setdefault(name, []).append((time.perf_counter() - began) * 1000)

    store = jobs.store
    acceptance = jobs.acceptance()
    job_id, tenant = acceptance.job_id, acceptance.tenant
    timed("accept", lambda: jobs.submit(acceptance))
    timed("start", lambda: jobs.start(job_id))
    for size in BATCHES:
        batch = Append(
            job_id=job_id,
            events=[("stdout", {"line": f"line {n} of output", "eol": True}) for n in range(size)],
            now_ms=store.clock(),
        )
        timed(f"append, {size} records", lambda batch=batch: store.call(batch))  # type: ignore[misc]
    timed("finalise", lambda: jobs.finalise(job_id))
    attestation = jobs.attestation(job_id)
    timed("persist an attestation", lambda: store.call(attestation))
    timed("read: summary", lambda: store.read.summary(tenant, job_id))
    timed("read: whole job", lambda: store.read.get(tenant, job_id))
    timed("read: 319 events", lambda: store.read.events_after(job_id, 0, 5000))
    timed("read: a page of 50 jobs", lambda: store.read.list_jobs(tenant, limit=50))


def _together(jobs: Jobs, times: dict[str, list[float]]) -> None:
    operations = [jobs.acceptance() for _ in range(TOGETHER)]
    began = time.perf_counter()
    for future in [jobs.store.submit(op) for op in operations]:
        future.result()
    taken = (time.perf_counter() - began) * 1000 / TOGETHER
    times.setdefault(f"accept, {TOGETHER} at once, each", []).append(taken)
