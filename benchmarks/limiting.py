"""What a job's control groups cost: the same launch with their limits and without, in turn.

It needs nothing but the namespace backend, so that it runs in a VM with groups of version 2 too.
"""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from benchmarks import launching, programs
from benchmarks.figures import median, percentile, ratio
from rookhold_exec import probe
from rookhold_exec.backends.namespaces_dev import NamespacesDev
from rookhold_exec.settings import ExecSettings
from rookhold_types.errors import RookholdError

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.figures import Book
    from benchmarks.launching import Launch
    from benchmarks.sizes import Sizes

LIMITED, UNLIMITED = "in groups", "without groups"
PROGRAMS = ("true", "bash", "python")
_ABSENT = "no-such-interpreter"


class Ungrouped(NamespacesDev):
    """The same sandbox, in no control group of its own."""

    def hello(self) -> dict[str, Any]:
        return {**super().hello(), "places": []}


async def measure(book: Book, sizes: Sizes, place: Path) -> None:
    """Fill the table; a host where no group can be made is left out, and that is said."""
    places = probe.places()
    if not places:
        book.left_out.append("limits: no control group may be made here")
        return
    wanted = [program for program in programs.available() if program.name in PROGRAMS]
    launches: dict[tuple[str, str], Launch] = {}
    async with AsyncExitStack() as stack:
        logging.disable(logging.WARNING)  # of interpreters that are left out on purpose
        try:
            for name, kind in ((LIMITED, NamespacesDev), (UNLIMITED, Ungrouped)):
                jobs = place / kind.__name__
                jobs.mkdir(mode=0o700)
                for program in wanted:
                    executor = kind(_settings(str(jobs), program.name), "measured")
                    await executor.open()
                    stack.push_async_callback(executor.close)
                    launches[name, program.name] = launching.runner(executor, program)
        except (RookholdError, OSError) as error:
            book.left_out.append(f"limits: {error}")
            return
        finally:
            logging.disable(logging.NOTSET)
        samples = await launching.take_turns(launches, sizes)
    versions = " and ".join(str(version) for version in sorted({each[1] for each in places}))
    table = book.table(
        "Limits",
        f"ms of a launch with and without limits, groups of version {versions}; medians, in turn",
        "program",
        "job",
        "ms",
        "x without",
        "p10 ms",
        "p10 x without",
    )
    for program in wanted:
        bare = samples[UNLIMITED, program.name]
        for name in (UNLIMITED, LIMITED):
            taken = samples[name, program.name]
            middle = book.put(f"limits.{program.name}.{name}", median(taken))
            low = percentile(taken, 0.1)
            table.add(
                program.name,
                name,
                middle,
                ratio(middle, median(bare)),
                low,
                ratio(low, percentile(bare, 0.1)),
            )


def _settings(jobs: str, program: str) -> ExecSettings:
    """Return settings with one interpreter: each executor has a launcher of its own."""
    python, bash = ("python3", _ABSENT) if program == "python" else (_ABSENT, program)
    return ExecSettings(jobs_root=jobs, python=python, node=_ABSENT, bash=bash)
