"""`python -m benchmarks`: every part in one run, printed as it comes."""

from __future__ import annotations

import argparse
import asyncio  # noqa: TID251 - each part has a loop of its own
import gc
import inspect
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import (
    accepting,
    evidence,
    fanout,
    goals,
    launching,
    limiting,
    memory,
    programs,
    report,
    road,
    scaling,
    starting,
    storing,
    sweeping,
    throughput,
)
from benchmarks.figures import Book
from benchmarks.sizes import FULL, QUICK

if TYPE_CHECKING:
    from benchmarks.sizes import Sizes

PARTS = (
    "starts",
    "launch",
    "limits",
    "road",
    "accept",
    "store",
    "lives",
    "scale",
    "sweep",
    "evidence",
    "fanout",
    "memory",
)


def run(part: str, book: Book, sizes: Sizes, place: Path) -> None:
    if part == "evidence":
        bare = book.figures.get("launch.python.posix_spawn")
        evidence.measure(book, sizes, bare or programs_start())
        return
    module = {
        "starts": starting,
        "launch": launching,
        "limits": limiting,
        "road": road,
        "accept": accepting,
        "store": storing,
        "lives": throughput,
        "scale": scaling,
        "sweep": sweeping,
        "fanout": fanout,
        "memory": memory,
    }[part]
    here = place / part
    here.mkdir(mode=0o711)
    made = module.measure(book, sizes, here)
    if inspect.iscoroutine(made):
        asyncio.run(made)


def programs_start() -> float:
    """Return the milliseconds of one bare start of python, where the launches were not measured."""
    argv = [programs.BY_NAME["python"].path(), "-I", "-c", "pass"]
    began = time.perf_counter()
    starting._run(argv)
    return (time.perf_counter() - began) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few runs of each, to see it work")
    parser.add_argument("--short", action="store_true", help="fewer lives, still enough to compare")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there as well")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part (repeatable)")
    parser.add_argument("--jobs", type=int, metavar="N", help="retained, in the part `scale`")
    parser.add_argument("--rounds", type=int, metavar="N", help="of launches, instead of the usual")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    if options.rounds is not None:
        sizes = replace(sizes, launch_rounds=options.rounds)
    if options.short:
        sizes = replace(sizes, lives=96, lives_rounds=3)
    if options.jobs is not None:
        sizes = replace(sizes, scale_jobs=options.jobs)
    book = Book()
    before = report.machine()
    shown = ", ".join(f"{name} {value}" for name, value in before.items())
    print(f"{shown}\n", flush=True)
    gc.freeze()
    place = programs.scratch()
    began = time.monotonic()
    try:
        for part in options.only or PARTS:
            told = len(book.tables)
            run(part, book, sizes, place)
            for table in book.tables[told:]:
                print(report.text(table), flush=True)
    finally:
        programs.remove(place)
    goals.measure(book)
    if book.tables[-1].rows:
        print(report.text(book.tables[-1]))
    for line in book.left_out:
        print(f"left out: {line}")
    print(f"took {time.monotonic() - began:.0f} s")
    if options.json is not None:
        options.json.write_text(report.as_json(book, before), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
