"""Cold starts: our commands beside a bare interpreter, and a gateway until it would take a job."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.figures import median, ratio
from benchmarks.programs import ENVIRONMENT
from benchmarks.servers import gateway

if TYPE_CHECKING:
    from benchmarks.figures import Book
    from benchmarks.sizes import Sizes

BARE = "python -c pass"
_BIN = Path(sys.executable).parent
# Each by the same interpreter, with the site directory that the commands need as well.
COMMANDS = {
    BARE: [sys.executable, "-c", "pass"],
    "rookhold --version": [str(_BIN / "rookhold"), "--version"],
    "rookhold-verify --help": [str(_BIN / "rookhold-verify"), "--help"],
    "rookhold run --help": [str(_BIN / "rookhold"), "run", "--help"],
}


def measure(book: Book, sizes: Sizes, place: Path) -> None:
    times: dict[str, list[float]] = defaultdict(list)
    order = [name for name, argv in COMMANDS.items() if Path(argv[0]).exists()]
    for name in order:
        _run(COMMANDS[name])
    for _ in range(sizes.start_rounds):
        random.shuffle(order)
        for name in order:
            began = time.perf_counter()
            _run(COMMANDS[name])
            times[name].append((time.perf_counter() - began) * 1000)
    bare = median(times[BARE])
    table = book.table("Cold start", "ms, medians, in turn", "command", "ms", "x bare")
    for name in COMMANDS:
        if name in times:
            middle = book.put(f"start.{name}", median(times[name]))
            table.add(name, middle, ratio(middle, bare))
    with gateway(place / "starting") as served:
        ready = book.put("start.gateway", served.ready_seconds * 1000)
    table.add("a gateway, until it takes jobs (once)", ready, ratio(ready, bare))


def _run(argv: list[str]) -> None:
    subprocess.run(
        argv, env=ENVIRONMENT, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
