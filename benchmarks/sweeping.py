"""How long retention holds the writer at a time, and how much it removes meanwhile."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from benchmarks.figures import median, percentile
from benchmarks.servers import ROOT
from rookhold_store import Append, Store, Sweep
from rookhold_store.testing import Jobs, anything_binds
from rookhold_store.testing.holds import Holds
from rookhold_store.testing.population import START_MS, STEP_MS, kept

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.figures import Book
    from benchmarks.sizes import Sizes

MIB = 1 << 20


def measure(book: Book, sizes: Sizes, place: Path) -> None:
    """Remove every job of an ordinary store, then jobs with megabytes each."""
    table = book.table(
        "Retention",
        "ms for which whatever is submitted has to wait: a transaction with its commit, or a step"
        " for the file",
        "old jobs",
        "removed a second",
        "median",
        "99 %",
        "longest",
        "longest, processor",
    )
    path = place / "store.db"
    shutil.copyfile(kept(ROOT / ".cache", sizes.scale_jobs), path)
    path.chmod(0o600)
    with Store.open(path, binding=anything_binds) as store:
        rate, holds = _sweep(store, START_MS + 2 * sizes.scale_jobs * STEP_MS)
    table.add(f"{sizes.scale_jobs}, ordinary", *_figures(book, "ordinary", rate, holds))
    heavy = sizes.swept_heavy
    with Store.open(place / "heavy.db", binding=anything_binds) as store:
        for _ in range(heavy):
            _heavy(Jobs(store))
        rate, holds = _sweep(store, store.clock() + 1)
    table.add(f"{heavy}, of 2.5 MiB each", *_figures(book, "heavy", rate, holds))


def _sweep(store: Store, now_ms: int) -> tuple[float, Holds]:
    removed, more, began = 0, True, time.perf_counter()
    with Holds(store) as holds:
        while more:
            swept = store.call(Sweep(now_ms=now_ms, age_ms=0))
            more, removed = swept.more_remaining, removed + swept.jobs_deleted
        taken = time.perf_counter() - began
    return removed / taken, holds


def _heavy(jobs: Jobs) -> None:
    """Two artifacts of a MiB and a few thousand lines."""
    store, job_id = jobs.store, jobs.running()
    for number in range(2):
        data = {"path": f"output/{number}", "content_base64": "A" * MIB}
        store.call(Append(job_id=job_id, events=[("artifact", data)], now_ms=store.clock()))
    for _ in range(10):
        jobs.append(job_id, *["a line of the output of a job, of usual length"] * 200)
    jobs.finalise(job_id)


def _figures(book: Book, kind: str, rate: float, holds: Holds) -> list[float]:
    walls = [hold.wall_ms for hold in holds.seen if hold.wall_ms >= 1.0] or [1.0]
    longest = holds.longest
    before = book.figures.get("sweep.longest_ms", 0.0)
    book.put("sweep.longest_ms", max(longest.wall_ms, before))
    return [
        book.put(f"sweep.{kind}.jobs_per_second", rate),
        book.put(f"sweep.{kind}.median_ms", median(walls)),
        book.put(f"sweep.{kind}.p99_ms", percentile(walls, 0.99)),
        book.put(f"sweep.{kind}.longest_ms", longest.wall_ms),
        book.put(f"sweep.{kind}.longest_cpu_ms", longest.cpu_ms),
    ]
