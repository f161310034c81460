"""Whoever guards a job is killed at a random moment: it ends, with a receipt, and work goes on.

That is the launcher, a job's supervisor, and under gVisor `runsc`, its sandbox and its gofer. The
moments are drawn from a job's whole life: set-up, run and collection. The seed is said.
"""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

import pytest
from endurance.assault import Assault
from isolating import private_place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from isolating import Isolating

KILLS, SOAK_KILLS = 8, 200
# Repeats a run's choices, though not its timing: set it to the seed that was printed.
SEED = os.environ.get("ROOKHOLD_FAULT_SEED", "")


def run_kills(home: Path, backend: Isolating, kills: int, say: Callable[[str], None]) -> None:
    seed = SEED or secrets.token_hex(4)
    say(f"seed {seed}")
    with private_place() as place:
        assault = Assault(home / "gateway", place / "jobs", backend, seed, say)
        say(f"{assault.run(kills)}; seed {seed}")


def test_eight_kills_at_random_moments_are_survived(
    tmp_path: Path, backend: Isolating, say: Callable[[str], None]
) -> None:
    run_kills(tmp_path, backend, KILLS, say)


@pytest.mark.soak
def test_two_hundred_kills_at_random_moments_are_survived(
    tmp_path: Path, backend: Isolating, say: Callable[[str], None]
) -> None:
    run_kills(tmp_path, backend, SOAK_KILLS, say)
