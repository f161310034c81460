"""The whole road over HTTP: one job from the request to its output, at several concurrencies."""

from __future__ import annotations

import asyncio  # noqa: TID251 - closed loops of several clients at once
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from benchmarks import bubblewrap, spawning
from benchmarks.figures import median, percentile, ratio
from benchmarks.http import Connection
from benchmarks.programs import BY_NAME, write_scripts
from benchmarks.servers import baseline, gateway
from benchmarks.sizes import CONCURRENCIES

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.figures import Book
    from benchmarks.servers import Served
    from benchmarks.sizes import Sizes

Job = Callable[[], Awaitable[None]]
Client = Callable[[AsyncExitStack], Awaitable[Job]]  # connects, once for all the jobs of a turn

GATEWAY, UNSIGNED, BASELINE, BARE = "rookhold", "rookhold unsigned", "baseline", "posix_spawn"
LANGUAGES = ("python", "bash")
HELLO = "hello\n"
_WAIT_SECONDS = 60


async def measure(book: Book, sizes: Sizes, place: Path) -> None:
    write_scripts(place / "scripts")
    with gateway(place / "gateway") as signed, gateway(place / "unsigned", signing=False) as plain:
        clients: dict[tuple[str, str], Client] = {}
        for language in LANGUAGES:
            clients[GATEWAY, language] = _gateway_client(signed, language)
            clients[BARE, language] = _bare_client(language, str(place / "scripts"))
        clients[UNSIGNED, "python"] = _gateway_client(plain, "python")
        if bubblewrap.find() is None:
            await _at_every_concurrency(book, sizes, clients)
            return
        with baseline() as served:
            for language in LANGUAGES:
                clients[BASELINE, language] = _baseline_client(served, language)
            await _at_every_concurrency(book, sizes, clients)


def _gateway_client(served: Served, language: str) -> Client:
    """Submit, then wait for the result: two requests."""
    spec = {"language": language, "code": BY_NAME[language].code}

    async def connect(stack: AsyncExitStack) -> Job:
        connection = await stack.enter_async_context(Connection(served.address, served.api_key))

        async def job() -> None:
            job_id = (await connection.ask(201, "POST", "/v1/jobs", spec))["job_id"]
            path = f"/v1/jobs/{job_id}/result?wait_seconds={_WAIT_SECONDS}"
            result = await connection.ask(200, "GET", path)
            if result["stdout"] != HELLO:
                raise RuntimeError(f"{language}: {result}")

        return job

    return connect


def _baseline_client(served: Served, language: str) -> Client:
    spec = {"language": language, "code": BY_NAME[language].code}

    async def connect(stack: AsyncExitStack) -> Job:
        connection = await stack.enter_async_context(Connection(served.address))

        async def job() -> None:
            result = await connection.ask(200, "POST", "/run", spec)
            if result["stdout"] != HELLO:
                raise RuntimeError(f"{language}: {result}")

        return job

    return connect


def _bare_client(language: str, scripts: str) -> Client:
    """No server and no sandbox: what the interpreter itself takes."""
    argv = BY_NAME[language].argv(scripts)

    async def connect(stack: AsyncExitStack) -> Job:
        del stack

        async def job() -> None:
            if await spawning.run(argv) != HELLO.encode():
                raise RuntimeError(language)

        return job

    return connect


async def _at_every_concurrency(
    book: Book, sizes: Sizes, clients: dict[tuple[str, str], Client]
) -> None:
    for client in clients.values():
        await _turn(client, 2, 4)
    for concurrency in CONCURRENCIES:
        times: dict[tuple[str, str], list[float]] = defaultdict(list)
        rates: dict[tuple[str, str], list[float]] = defaultdict(list)
        order = list(clients)
        for _ in range(sizes.road_rounds):
            random.shuffle(order)
            for name in order:
                taken, rate = await _turn(clients[name], concurrency, sizes.road_jobs)
                times[name] += taken
                rates[name].append(rate)
        _show(book, concurrency, times, rates)


async def _turn(client: Client, concurrency: int, jobs: int) -> tuple[list[float], float]:
    """Run `jobs` jobs by as many clients at once; return the milliseconds of each, and jobs/s."""
    clock = asyncio.get_running_loop().time
    taken: list[float] = []
    left = iter(range(max(jobs, concurrency)))

    async def work(job: Job) -> None:
        for _ in left:
            began = clock()
            await job()
            taken.append((clock() - began) * 1000)

    async with AsyncExitStack() as stack:
        ready = [await client(stack) for _ in range(concurrency)]
        began = clock()
        await asyncio.gather(*(work(job) for job in ready))
        return taken, len(taken) / (clock() - began)


def _show(
    book: Book,
    concurrency: int,
    times: dict[tuple[str, str], list[float]],
    rates: dict[tuple[str, str], list[float]],
) -> None:
    table = book.table(
        f"The road of a hello over HTTP, {concurrency} at once",
        "ms from request to output; jobs/s is the median of the turns",
        "language",
        "server",
        "p50 ms",
        "p95 ms",
        "p95/p50",
        "jobs/s",
        "p50 x bare",
        "p50 x baseline",
        "jobs/s x baseline",
        "p10 ms",
        "p10 x baseline",
    )
    for language in LANGUAGES:
        bare = median(times[BARE, language])
        other = times.get((BASELINE, language))
        for server in (BARE, BASELINE, UNSIGNED, GATEWAY):
            if (taken := times.get((server, language))) is None:
                continue
            name = f"road.{language}.{server}.{concurrency}"
            p50 = book.put(f"{name}.p50_ms", median(taken))
            p95 = book.put(f"{name}.p95_ms", percentile(taken, 0.95))
            rate = book.put(f"{name}.jobs_per_second", median(rates[server, language]))
            table.add(
                language,
                server,
                p50,
                p95,
                ratio(p95, p50),
                rate,
                ratio(p50, bare),
                ratio(p50, median(other)) if other else "-",
                ratio(rate, median(rates[BASELINE, language])) if other else "-",
                low := book.put(f"{name}.p10_ms", percentile(taken, 0.1)),
                ratio(low, percentile(other, 0.1)) if other else "-",
            )
