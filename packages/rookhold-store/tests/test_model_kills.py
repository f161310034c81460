"""Random operations in a process that is killed at any moment, against the simple model."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rookhold_store import Store, Sweep, Swept
from rookhold_store.accounting import findings
from rookhold_store.operations import Operation
from rookhold_store.testing import anything_binds, tampering_connection
from rookhold_store.testing_model import Model
from rookhold_store.testing_traffic import Life

CHILD = Path(__file__).parent / "programs" / "traffic_until_killed.py"
JOBS_OF_A_SWEEP = range(65)
Lives = list[tuple[int, int, list[int]]]


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


def survived(store: Store, model: Model, rest: list[Operation[object]]) -> tuple[int, list[int]]:
    """Return how many operations took place beyond the acknowledged ones, and what sweeps did.

    Those of a group share commits in their order, so that what took place is the first of them.
    """
    tried = []
    for more in range(len(rest) + 1):
        sweeping = bool(rest) and isinstance(rest[0], Sweep) and more == 1
        for deleted in JOBS_OF_A_SWEEP if sweeping else [0]:
            then = model.copy()
            hint = Swept(jobs_deleted=deleted, events_deleted=0, more_remaining=False)
            for op in rest[:more]:
                then.apply(op, hint)
            then.reopen()
            tried = then.differences(store)
            if not tried:
                return more, [deleted] if sweeping else []
    raise AssertionError(tried)


def run(path: Path, seed: int, kills: int) -> None:
    dice = random.Random(seed)
    lives: Lives = []
    for _ in range(kills):
        lives.append((dice.randrange(2**32), 0, []))
        said = live(path, lives, dice)
        swept = [int(line) for line in said if line != "-"]
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
