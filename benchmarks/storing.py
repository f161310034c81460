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
    times: dict[str, list[float]] = {}
    floor: list[float] = []
    with (
        BareCommits(place / "bare.db") as bare_commits,
        Store.open(
            place / "store.db", binding=anything_binds, clock=TickingClock(1_700_000_000_000)
        ) as store,
    ):
        for _ in range(sizes.store_rounds):
            floor.append(bare_commits.one())
            _one_life(Jobs(store), times)
        for _ in range(max(3, sizes.store_rounds // 10)):
            _together(Jobs(store), times)
    bare = median(floor)
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


class BareCommits:
    """Single durable inserts by the same SQLite, set up as the store sets up its own."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        self._db.pragma("journal_mode", "wal")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT) STRICT")

    def __enter__(self) -> BareCommits:
        return self

    def __exit__(self, *_: object) -> None:
        self._db.close()

    def one(self) -> float:
        """Return the milliseconds of one."""
        began = time.perf_counter()
        self._db.execute("INSERT INTO t (b) VALUES (?)", ("x" * 200,))
        return (time.perf_counter() - began) * 1000


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
