"""Where we stand: the figures that are aimed at, as ratios wherever something can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.figures import Book


@dataclass(frozen=True, kw_only=True)
class Goal:
    """`figure` divided by `base` (or by 1) should be at most, or at least, `bound`."""

    name: str
    figure: str
    base: str | None = None
    bound: float
    at_least: bool = False
    unit: str = "x"


def _launch(program: str) -> Goal:
    return Goal(
        name=f"launch {program}: namespaces-dev / bubblewrap",
        figure=f"launch.{program}.namespaces-dev",
        base=f"launch.{program}.bubblewrap",
        bound=1.0,
    )


def _limits(program: str) -> Goal:
    return Goal(
        name=f"launch {program}: with limits / without",
        figure=f"limits.{program}.in groups",
        base=f"limits.{program}.without groups",
        bound=1.15,
    )


def _rate(concurrency: int) -> Goal:
    return Goal(
        name=f"python hello, {concurrency} at once: jobs/s / baseline",
        figure=f"road.python.rookhold.{concurrency}.jobs_per_second",
        base=f"road.python.baseline.{concurrency}.jobs_per_second",
        bound=1.1,
        at_least=True,
    )


_ONE = "road.python.rookhold.1.p50_ms"
GOALS = (
    _launch("true"),
    _launch("bash"),
    _launch("python"),
    _limits("true"),
    _limits("bash"),
    _limits("python"),
    Goal(
        name="python hello, one client: p50 / baseline",
        figure=_ONE,
        base="road.python.baseline.1.p50_ms",
        bound=1.0,
    ),
    Goal(
        name="python hello, one client: p50 / bare python -I",
        figure=_ONE,
        base="road.python.posix_spawn.1.p50_ms",
        bound=1.9,
    ),
    Goal(
        name="python hello, one client: p95 / p50",
        figure="road.python.rookhold.1.p95_ms",
        base=_ONE,
        bound=1.3,
    ),
    _rate(4),
    _rate(8),
    Goal(
        name="bash hello, one client: p50 / baseline's python p50",
        figure="road.bash.rookhold.1.p50_ms",
        base="road.python.baseline.1.p50_ms",
        bound=0.7,
    ),
    Goal(
        name="whole lives in the store: 32 at once / one at a time",
        figure="lives.32",
        base="lives.1",
        bound=3.0,
        at_least=True,
    ),
    Goal(
        name="whole lives in the store: 32 at once / bare SQLite",
        figure="lives.32",
        base="lives.bare",
        bound=0.6,
        at_least=True,
    ),
    Goal(
        name="many retained jobs / a thousand: the dearest operation",
        figure="scale.dearest",
        bound=1.2,
    ),
    Goal(
        name="removing old jobs: longest hold of the writer",
        figure="sweep.longest_ms",
        bound=50.0,
        unit=" ms",
    ),
    Goal(
        name="durable accept, the loop busy with requests: p95",
        figure="accept.loop busy.p95_ms",
        bound=10.0,
        unit=" ms",
    ),
    Goal(
        name="WebSocket fan-out to 10 readers: messages/s / bare hypercorn",
        figure="fanout.rookhold.messages_per_second",
        base="fanout.hypercorn.messages_per_second",
        bound=0.5,
        at_least=True,
    ),
    Goal(name="durable accept at rest: p50", figure="accept.idle.p50_ms", bound=4.0, unit=" ms"),
    Goal(
        name="memory at rest, every process, PSS",
        figure="memory.rookhold.after_mib",
        bound=100.0,
        unit=" MiB",
    ),
    Goal(
        name="rookhold --version / bare interpreter",
        figure="start.rookhold --version",
        base="start.python -c pass",
        bound=3.0,
    ),
    Goal(
        name="rookhold-verify --help / bare interpreter",
        figure="start.rookhold-verify --help",
        base="start.python -c pass",
        bound=3.0,
    ),
)


def measure(book: Book) -> None:
    """Compare; nothing fails by it, for a busy machine is no fault of the code."""
    table = book.table("Goals", "of this run, on this machine", "goal", "aim", "here", "")
    for goal in GOALS:
        value = book.figures.get(goal.figure)
        base = 1.0 if goal.base is None else book.figures.get(goal.base)
        if value is None or base is None:
            continue
        reached = book.put(f"goal.{goal.name}", value / base)
        good = reached >= goal.bound if goal.at_least else reached <= goal.bound
        sign = ">=" if goal.at_least else "<="
        table.add(
            goal.name,
            f"{sign} {goal.bound:g}{goal.unit}",
            f"{reached:.2f}{goal.unit}",
            "met" if good else "NOT MET",
        )
