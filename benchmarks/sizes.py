"""How much is measured: the whole run of a few minutes, or just enough to see that it works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Counts and pauses of every part.

    Everything that is compared takes turns: a round is one turn of each competitor, shuffled.
    """

    start_rounds: int
    launch_rounds: int
    launch_pause_seconds: float  # between two runs; a tight loop hides costs of a host at rest
    road_rounds: int
    road_jobs: int  # of one competitor in one turn
    accept_jobs: int
    store_rounds: int
    evidence_rounds: int
    lives: int  # whole lives of jobs over the store, in one turn
    lives_rounds: int
    scale_jobs: int  # retained, beside a thousand
    scale_turns: int
    swept_heavy: int  # old jobs of megabytes
    fanout_messages: int  # to each of ten readers
    fanout_rounds: int
    settle_seconds: float  # before memory is read


FULL = Sizes(
    start_rounds=25,
    launch_rounds=80,
    launch_pause_seconds=0.02,
    road_rounds=5,
    road_jobs=24,
    accept_jobs=120,
    store_rounds=150,
    evidence_rounds=400,
    lives=256,
    lives_rounds=7,
    scale_jobs=50_000,
    scale_turns=200,
    swept_heavy=100,
    fanout_messages=9_000,
    fanout_rounds=5,
    settle_seconds=2.0,
)
QUICK = Sizes(
    start_rounds=1,
    launch_rounds=1,
    launch_pause_seconds=0.0,
    road_rounds=1,
    road_jobs=4,
    accept_jobs=4,
    store_rounds=3,
    evidence_rounds=3,
    lives=32,
    lives_rounds=1,
    scale_jobs=1_200,
    scale_turns=1,
    swept_heavy=2,
    fanout_messages=200,
    fanout_rounds=1,
    settle_seconds=0.0,
)
CONCURRENCIES = (1, 2, 4, 8)
