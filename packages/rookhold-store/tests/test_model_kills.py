"""Random operations in a process that is killed at any moment, against the simple model."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookhold_store import Store, Sweep, Swept
from rookhold_store.accounting import findings
from rookhold_store.operations import Operation
from rookhold_store.testing import anything_binds, tampering_connection
from rookhold_store.testing.model import Model
from rookhold_store.testing.traffic import Life

CHILD = Path(__file__).parent / "programs" / "traffic_until_killed.py"
Sweepings = list[tuple[int, int]]  # the jobs and events that each sweep deleted
Lives = list[tuple[int, int, Sweepings]]


def live(path: Path, lives: Lives, dice: random.Random) -> list[str]:
    """Run the child for a random while, kill it, and return what it said for certain."""
    argv = [sys.executable, str(CHILD), str(path), json.dumps(lives)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        answers = dice.choice((0, 0, 3, 30, 150))
        said = [child.stdout.readline() for _ in range(answers)]
        time.sleep(dice.uniform(0, 0.03))
        child.kill()
        said += child.stdout.read().splitlines(keepends=True)
    lines = [line.rstrip("\n") for line in said if line.endswith("\n")]
    assert not [line for line in lines if line.startswith("wrong")]
    return lines


def past(lives: Lives) -> tuple[Model, list[Operation[object]]]:
    """Return what the acknowledged operations made, and those of the last group that were not."""
    model, rest = Model(), []
    for number, (seed, count, swept) in enumerate(lives):
        if number:
            model.reopen()
        rest = Life(model, random.Random(seed), number).replay(count, swept)
    return model, rest


def sweeps(model: Model, op: Sweep) -> Iterator[tuple[int, int]]:
    """Yield the jobs and events that a sweep may have deleted: whole ones, then part of one."""
    events = 0
    for jobs, job_id in enumerate(model.sweep_turn(op)):
        of_this = len(model.jobs[job_id].events)
        yield from ((jobs, events + part) for part in range(of_this))
        events += of_this
        yield jobs + 1, events


def survived(store: Store, model: Model, rest: list[Operation[object]]) -> tuple[int, Sweepings]:
    """Return how many operations took place beyond the acknowledged ones, and what sweeps did.

    Those of a group share commits in their order, so that what took place is the first of them.
    """
    tried: list[str] = []
    for more in range(len(rest) + 1):
        sweep = rest[0] if more and isinstance(rest[0], Sweep) else None
        for jobs, events in [(0, 0)] if sweep is None else sweeps(model, sweep):
            then = model.copy()
            hint = Swept(jobs_deleted=jobs, events_deleted=events, more_remaining=False)
            for op in rest[:more]:
                then.apply(op, hint)
            then.reopen()
            tried = then.differences(store)
            if not tried:
                return more, [] if sweep is None else [(jobs, events)]
    raise AssertionError(tried)


def run(path: Path, seed: int, kills: int) -> None:
    dice = random.Random(seed)
    lives: Lives = []
    for _ in range(kills):
        lives.append((dice.randrange(2**32), 0, []))
        said = live(path, lives, dice)
        swept = [
            (int(jobs), int(events))
            for jobs, _, events in (line.partition(" ") for line in said if line != "-")
        ]
        lives[-1] = (lives[-1][0], len(said), swept)
        model, rest = past(lives)
        with Store.open(path, binding=anything_binds) as store:
            more, swept_more = survived(store, model, rest)
            db = tampering_connection(path)
            try:
                assert findings(db) == []
                assert db.execute("PRAGMA integrity_check").get == "ok"
            finally:
                db.close()
        lives[-1] = (lives[-1][0], len(said) + more, swept + swept_more)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_kill_keeps_what_was_answered_and_of_what_was_not_the_first_or_nothing(
    path: Path, seed: int
) -> None:
    run(path, seed, kills=5)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(20))
def test_five_hundred_kills_keep_what_was_answered(path: Path, seed: int) -> None:
    run(path, 1000 + seed, kills=25)
