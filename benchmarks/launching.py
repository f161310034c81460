"""Launch cost: one short program at a time, by every launcher in turn, with pauses between runs."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the executors live on an asyncio loop
import logging
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from benchmarks import bubblewrap, programs, spawning
from benchmarks.figures import median, percentile, ratio
from rookhold_exec.executor import SandboxPlan
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_types.errors import RookholdError
from rookhold_types.ids import new_job_id
from rookhold_types.limits import Limits
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.figures import Book
    from benchmarks.programs import Program
    from benchmarks.sizes import Sizes
    from rookhold_exec.executor import Executor

Launch = Callable[[], Awaitable[None]]

BARE, BWRAP, OFF, NAMESPACES = "posix_spawn", "bubblewrap", "off", "namespaces-dev"
BACKENDS = (OFF, NAMESPACES)
# `true` is no language: an executor of its own takes it for its bash.
_LANGUAGE = {"true": "bash"}
_ABSENT = "no-such-interpreter"
_LIMITS = Limits(wall_seconds=30)


async def measure(book: Book, sizes: Sizes, place: Path) -> None:
    """Fill the table of launches; a launcher that this host lacks is left out, and that is said."""
    wanted = programs.available()
    scripts = place / "scripts"
    programs.write_scripts(scripts)
    async with AsyncExitStack() as stack:
        launches = _by_hand(wanted, str(scripts), book)
        for backend in BACKENDS:
            jobs = place / f"jobs-{backend}"
            jobs.mkdir(mode=0o700)
            launches |= await _by_executor(backend, wanted, str(jobs), stack, book)
        samples = await take_turns(launches, sizes)
    _show(book, wanted, samples)


def _by_hand(
    wanted: tuple[Program, ...], scripts: str, book: Book
) -> dict[tuple[str, str], Launch]:
    launches: dict[tuple[str, str], Launch] = {}
    bwrap = bubblewrap.find()
    if bwrap is None:
        book.left_out.append("bubblewrap: not installed, so there is nothing to compare with")
    for program in wanted:
        launches[BARE, program.name] = _spawner(program.argv(scripts))
        if bwrap is not None:
            argv = bubblewrap.wrapped(bwrap, program.argv("/work"), work=scripts)
            launches[BWRAP, program.name] = _spawner(argv)
    return launches


def _spawner(argv: list[str]) -> Launch:
    async def launch() -> None:
        await spawning.run(argv)

    return launch


async def _by_executor(
    backend: str, wanted: tuple[Program, ...], jobs: str, stack: AsyncExitStack, book: Book
) -> dict[tuple[str, str], Launch]:
    sets = (
        ExecSettings(jobs_root=jobs, python=_ABSENT, node=_ABSENT, bash="true"),
        ExecSettings(jobs_root=jobs),
    )
    launches: dict[tuple[str, str], Launch] = {}
    logging.disable(logging.WARNING)  # of interpreters that are left out on purpose
    try:
        executors = [choose_backend(backend, settings) for settings in sets]
        for executor in executors:
            await executor.open()
            stack.push_async_callback(executor.close)
    except (RookholdError, OSError) as error:
        book.left_out.append(f"{backend}: {error}")
        return {}
    finally:
        logging.disable(logging.NOTSET)
    for program in wanted:
        executor = executors[0 if program.name == "true" else 1]
        launches[backend, program.name] = runner(executor, program)
    return launches


def runner(executor: Executor, program: Program) -> Launch:
    language = _LANGUAGE.get(program.name, program.name)

    async def launch() -> None:
        plan = SandboxPlan(
            job_id=new_job_id(), language=language, code=program.code.encode(), limits=_LIMITS
        )
        running = await executor.start(plan)
        async for _ in running.events():
            pass
        report = await running.wait()
        if report.status is not JobStatus.SUCCEEDED:
            raise RuntimeError(f"{program.name} ended {report.status}")

    return launch


async def take_turns(
    launches: dict[tuple[str, str], Launch], sizes: Sizes
) -> dict[tuple[str, str], list[float]]:
    clock = asyncio.get_running_loop().time
    samples: dict[tuple[str, str], list[float]] = defaultdict(list)
    order = list(launches)
    for name in order:  # once unmeasured: files come into memory, code is compiled
        await launches[name]()
    for _ in range(sizes.launch_rounds):
        random.shuffle(order)
        for name in order:
            await asyncio.sleep(sizes.launch_pause_seconds)
            began = clock()
            await launches[name]()
            samples[name].append((clock() - began) * 1000)
    return samples


def _show(
    book: Book, wanted: tuple[Program, ...], samples: dict[tuple[str, str], list[float]]
) -> None:
    table = book.table(
        "Launch",
        "ms from the request to the end of every process, medians; all launchers in turn; "
        "p10 is what is left of a busy machine's noise",
        "program",
        "launcher",
        "ms",
        "x bare",
        "x bubblewrap",
        "p10 ms",
        "p10 x bubblewrap",
    )
    for program in wanted:
        bare = median(samples[BARE, program.name])
        wrapped = samples.get((BWRAP, program.name))
        for launcher in (BARE, BWRAP, *BACKENDS):
            if (taken := samples.get((launcher, program.name))) is None:
                continue
            middle = book.put(f"launch.{program.name}.{launcher}", median(taken))
            low = book.put(f"launch.{program.name}.{launcher}.p10", percentile(taken, 0.1))
            against = low_against = "-"
            if wrapped:
                against = ratio(middle, median(wrapped))
                low_against = ratio(low, percentile(wrapped, 0.1))
            table.add(
                program.name, launcher, middle, ratio(middle, bare), against, low, low_against
            )
