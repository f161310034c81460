"""A gateway under mixed load for minutes: what it holds must not grow.

`python tests/endurance/mixed.py --minutes 30 --log FILE` is the long run; the tests run it short.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from altered import altered
from crowd import Crowd
from endurance.mix import TENANTS, Mix
from faults.book import Book
from faults.leftovers import descriptors, resident_kib, threads
from faults.victims import family, launcher_of
from gateway import eventually
from invariants import problems

Say = Callable[[str], None]

WORKERS = 6  # four of them for the jobs that are followed
REST_SECONDS = 90
IDLE_SECONDS = 15.0  # threads that nobody needs end by themselves after ten
THREADS = 2  # more or less at rest
GROWN_KIB, LAUNCHER_GROWN_KIB = 16 * 1024, 2048
WAL_BYTES_MAX = 64 << 20
# How many tasks the loop has can be asked only inside: said at each probe of the storage.
TASKS = """
import asyncio
import os
from rookhold_server.http.readiness import Readiness
probe = Readiness.probe
async def counted(self):
    await probe(self)
    with open("tasks.new", "w") as file:
        file.write(str(len(asyncio.all_tasks())))
    os.replace("tasks.new", "tasks")
Readiness.probe = counted
"""


@dataclass(frozen=True)
class Held:
    """What server and launcher hold at one moment; sizes in KiB."""

    descriptors: int
    threads: int
    tasks: int
    memory: int
    launcher_descriptors: int
    launcher_memory: int
    log: int  # the database's, written ahead
    processes: int

    def __str__(self) -> str:
        return ", ".join(f"{each.name} {getattr(self, each.name)}" for each in fields(self))


def start(home: Path, sandbox: str) -> Crowd:
    crowd = Crowd(
        home,
        TENANTS,
        sandbox=sandbox,
        settings={
            "ROOKHOLD_WORKERS": str(WORKERS),
            "ROOKHOLD_METRICS_TOKEN": "a-token-of-the-operator",
            "ROOKHOLD_LOG_LEVEL": "warning",
        },
    )
    crowd.gateway.python = altered(home / "python", TASKS)
    return crowd.start()


def held(crowd: Crowd) -> Held:
    gateway = crowd.gateway
    process = gateway.process
    assert process is not None
    launcher = launcher_of(process.pid)
    assert launcher is not None
    ahead = gateway.database.with_name(gateway.database.name + "-wal")
    return Held(
        descriptors=len(descriptors(process.pid)),
        threads=threads(process.pid),
        tasks=int((gateway.home / "tasks").read_text("ascii") or 0),
        memory=resident_kib(process.pid),
        launcher_descriptors=len(descriptors(launcher)),
        launcher_memory=resident_kib(launcher),
        log=ahead.stat().st_size // 1024,
        processes=len(family(process.pid)),
    )


def at_rest(crowd: Crowd, idle: float, before: Held | None = None) -> Held:
    """What is held once nothing waits, runs or is to be signed, `idle` seconds later.

    What goes away by itself a little later, such as a connection that is being closed, may.
    """
    crowd.disconnect()
    with Book(crowd.gateway.database) as book:
        assert eventually(REST_SECONDS, lambda: book.count_open() == 0), "jobs do not end"
        assert eventually(REST_SECONDS, lambda: book.unsigned() == []), "jobs are not signed"
    time.sleep(idle)
    if before is not None:
        eventually(IDLE_SECONDS, lambda: not grown(before, held(crowd)))
    return held(crowd)


def load(crowd: Crowd, seconds: float, every: float, seed: str, say: Say) -> tuple[Mix, list[Held]]:
    mix = Mix(crowd, seed)
    samples = []
    began = time.monotonic()
    mix.start()
    while not mix.ended.wait(every) and time.monotonic() - began < seconds:
        samples.append(held(crowd))
        say(f"{time.monotonic() - began:6.0f} s: {samples[-1]}; jobs {mix.counts['submitted']}")
    mix.stop()
    told = ", ".join(f"{name} {count}" for name, count in sorted(mix.counts.items()))
    say(f"{time.monotonic() - began:.0f} s of load: {told}")
    return mix, samples


def run(
    home: Path,
    *,
    warm: float,
    seconds: float,
    every: float,
    say: Say,
    idle: float = IDLE_SECONDS,
    sandbox: str = "auto",
) -> list[str]:
    """Return what grew, broke or went wrong."""
    crowd = start(home, sandbox)
    try:
        first, _ = load(crowd, warm, every, "warm", say)
        before = at_rest(crowd, idle)
        say(f"at rest before: {before}")
        mix, samples = load(crowd, seconds, every, "load", say)
        after = at_rest(crowd, idle, before)
        say(f"at rest after:  {after}")
        status = crowd.stop()
    finally:
        crowd.__exit__(None, None, None)
    found = [*first.faults, *mix.faults, *grown(before, after), *rising(samples)]
    if status:
        found.append(f"the server ended with {status}")
    with Book(crowd.gateway.database) as book:
        jobs = book.job_ids()
    accepted = first.counts["submitted"] + mix.counts["submitted"]
    say(f"{len(jobs)} jobs stored, {accepted} of them of clients that chose by chance")
    return found + problems(crowd.gateway.database, jobs)


def grown(before: Held, after: Held) -> list[str]:
    """Compare two moments of rest."""
    most = {
        "descriptors": before.descriptors,
        "threads": before.threads + THREADS,
        "tasks": before.tasks,
        "memory": before.memory + GROWN_KIB,
        "launcher_descriptors": before.launcher_descriptors,
        "launcher_memory": before.launcher_memory + LAUNCHER_GROWN_KIB,
        "processes": before.processes,
    }
    return [
        f"{name} at rest: {getattr(before, name)}, then {getattr(after, name)}"
        for name, bound in most.items()
        if getattr(after, name) > bound
    ]


def rising(samples: list[Held]) -> list[str]:
    """Compare the second quarter of the time under load with the last."""
    if not samples:
        return ["nothing was looked at"]
    found = []
    if max(sample.log for sample in samples) * 1024 > WAL_BYTES_MAX:
        found.append("the database's log grew")
    if (part := len(samples) // 4) >= 5:
        early, late = samples[part : 2 * part], samples[-part:]
        for name, bound in (("memory", GROWN_KIB), ("descriptors", 8), ("threads", 4)):
            then, now = (
                statistics.median(getattr(sample, name) for sample in each)
                for each in (early, late)
            )
            if now - then > bound:
                found.append(f"{name} under load: {then:.0f}, later {now:.0f}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--warm-minutes", type=float, default=2)
    parser.add_argument("--log", type=Path, required=True)
    options = parser.parse_args()
    with options.log.open("w", encoding="utf-8") as log:

        def say(line: str) -> None:
            print(line, flush=True)
            print(line, file=log, flush=True)

        with tempfile.TemporaryDirectory(prefix="rookhold-mixed-") as place:
            found = run(
                Path(place) / "home",
                warm=options.warm_minutes * 60,
                seconds=options.minutes * 60,
                every=10.0,
                say=say,
            )
        for each in found:
            say(f"WRONG: {each}")
        say("nothing grew, and nothing is wrong" if not found else f"{len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
