"""What a store's operations cost with many retained jobs, beside the same with a thousand."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from benchmarks.figures import median, ratio
from benchmarks.servers import ROOT
from rookhold_store import Store
from rookhold_store.testing import anything_binds
from rookhold_store.testing.paces import Paces, compare
from rookhold_store.testing.population import Population, kept

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.figures import Book
    from benchmarks.sizes import Sizes

FEW = 1_000
OPENS = 5


def measure(book: Book, sizes: Sizes, place: Path) -> None:
    few, many = _copy(FEW, place), _copy(sizes.scale_jobs, place)
    table = book.table(
        "Scale",
        f"ms with {FEW:,} and with {sizes.scale_jobs:,} retained jobs, in turns; medians",
        "operation",
        f"{FEW:,}",
        f"{sizes.scale_jobs:,}",
        "ratio",
    )
    before, after = _open_ms(few), _open_ms(many)
    table.add("open", before, book.put("scale.open_ms", after), ratio(after, before))
    with (
        Store.open(few, binding=anything_binds) as small,
        Store.open(many, binding=anything_binds) as large,
    ):
        paces = Paces(small, Population(FEW)), Paces(large, Population(sizes.scale_jobs))
        found = compare(*paces, turns=sizes.scale_turns)
    for name, pair in found.items():
        book.put(f"scale.{name}.ratio", pair.ratio)
        table.add(name, pair.small * 1000, pair.large * 1000, f"{pair.ratio:.2f}x")
    book.put("scale.dearest", max(pair.ratio for pair in found.values()))


def _copy(jobs: int, place: Path) -> Path:
    path = place / f"store-{jobs}.db"
    shutil.copyfile(kept(ROOT / ".cache", jobs), path)
    path.chmod(0o600)
    return path


def _open_ms(path: Path) -> float:
    taken = []
    for _ in range(OPENS):
        began = time.perf_counter()
        store = Store.open(path, binding=anything_binds)
        taken.append((time.perf_counter() - began) * 1000)
        store.close()
    return median(taken)
