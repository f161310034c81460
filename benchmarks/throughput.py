"""Whole lives of jobs a second: 32 at once beside one, and beside bare SQLite."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from benchmarks import lifecycles
from benchmarks.figures import median, ratio
from rookhold_store import Store
from rookhold_store.testing import anything_binds

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.figures import Book
    from benchmarks.sizes import Sizes

AT_ONCE = (1, 8, 32)
MOST = AT_ONCE[-1]


def measure(book: Book, sizes: Sizes, place: Path) -> None:
    rates: dict[int, list[float]] = {at_once: [] for at_once in AT_ONCE}
    bare_rates: list[float] = []
    commits: list[float] = []
    lives = sizes.lives
    script = lifecycles.Script()
    bare = lifecycles.Bare(place / "bare.db")
    recording = lifecycles.recorded(place / "recorded.db", lives, MOST, script)
    with (
        closing(bare),
        closing(recording),
        Store.open(place / "store.db", binding=anything_binds) as store,
    ):
        for _ in range(sizes.lives_rounds):
            for at_once in AT_ONCE:
                count = lives if at_once > 1 else max(1, lives // 4)
                rates[at_once].append(lifecycles.run(store, count, at_once))
            next(recording)
            bare_rates.append(lives / bare.play(script))
            commits.append(lives * lifecycles.OPERATIONS / len(script.transactions))
    one = median(rates[1])
    table = book.table(
        "Lives",
        f"accept, start, {lifecycles.BATCHES} x {lifecycles.RECORDS} records, finalise, attest; "
        "every step on the disk before the next; medians",
        "jobs at once",
        "lives/s",
        "x one at a time",
        "x bare SQLite",
    )
    bare_rate = book.put("lives.bare", median(bare_rates))
    for at_once, samples in rates.items():
        rate = book.put(f"lives.{at_once}", median(samples))
        beside = "" if at_once < MOST else ratio(rate, bare_rate)
        table.add(str(at_once), rate, ratio(rate, one), beside)
    table.add(
        f"bare, {median(commits):.0f} operations a commit",
        bare_rate,
        ratio(bare_rate, one),
        "1.00x",
    )
