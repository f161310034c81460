"""Thirty kills, or five hundred with `make soak`: nothing is lost, doubled or left over.

Sync costs nothing in memory, and a kill is no loss of power: thirty kills run there if they can.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from faults.campaign import Campaign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MEMORY = Path("/dev/shm")
KILLS = {"namespaces-dev": 16, "off": 14}
SOAK_SEGMENTS, SOAK_KILLS = 10, 50
# Repeats a run's choices, though not its timing: set it to the seed that was printed.
SEED = os.environ.get("ROOKHOLD_FAULT_SEED", "")


@pytest.fixture
def fast_home(tmp_path: Path) -> Iterator[Path]:
    """Return a place for a gateway, in memory where there is such a place."""
    memory = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else tmp_path
    home = Path(tempfile.mkdtemp(prefix="rookhold-kills-", dir=memory))
    yield home / "gateway"
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.linux_ns
@pytest.mark.parametrize("sandbox", KILLS)
def test_kills_at_named_and_random_moments_lose_double_and_leave_nothing(
    fast_home: Path, sandbox: str
) -> None:
    seed = SEED or secrets.token_hex(4)
    print(f"seed {seed}")
    print(Campaign(fast_home, sandbox, seed, print).run(KILLS[sandbox]))


@pytest.mark.soak
@pytest.mark.linux_ns
@pytest.mark.parametrize("segment", range(SOAK_SEGMENTS))
def test_hundreds_of_kills_lose_double_and_leave_nothing(
    tmp_path: Path, segment: int, capsys: pytest.CaptureFixture[str]
) -> None:
    sandbox = "off" if segment % 2 else "namespaces-dev"
    seed = f"{SEED or secrets.token_hex(4)}-{segment}"
    say = _log(f"kills-{time.strftime('%Y%m%d')}-{seed}.log")
    campaign = Campaign(tmp_path / "gateway", sandbox, seed, say)
    line = campaign.run(SOAK_KILLS)
    for (victim, moment), count in sorted(campaign.kills.items()):
        say(f"count {victim} {moment} {count}")
    say(line)
    with capsys.disabled():
        print(f"\n{line}")


def _log(name: str) -> Callable[[str], None]:
    folder = os.environ.get("ROOKHOLD_SOAK_LOG")
    if not folder:
        return print
    Path(folder).mkdir(parents=True, exist_ok=True)
    path = Path(folder) / name

    def say(line: str) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    return say
