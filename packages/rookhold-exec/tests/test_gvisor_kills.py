"""Any process of a gVisor job killed at any moment: that job ends, the next runs, nothing stays."""

from __future__ import annotations

import asyncio
import os
import random
import time
from pathlib import Path

import pytest
from gvisor import PLATFORMS, groups_left, opened

from rookhold_exec.errors import ExecError, LauncherLostError
from rookhold_exec.executor import Report
from rookhold_exec.launcher.family import descendants
from rookhold_exec.testing import Harness, Result
from rookhold_types.states import JobStatus

MANY = 200
_SEED = 4
_SPAN = 0.8  # seconds in which a job starts, runs and ends
_CODE = "echo up; sleep 0.1; echo down"

ENDS = {JobStatus.ERROR, JobStatus.SUCCEEDED, JobStatus.FAILED}


def _is_program(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


def launcher_of(harness: Harness) -> int:
    return int(harness.executor._launcher.pid)  # type: ignore[attr-defined]


async def struck(harness: Harness, chance: random.Random) -> tuple[str, Report | None]:
    """Run one job, kill one of its processes at a random moment, and return both ends."""
    after, pick = chance.random() * _SPAN, chance.random()
    starting = asyncio.ensure_future(harness.executor.start(harness.plan("bash", _CODE)))
    await asyncio.sleep(after)
    launcher = launcher_of(harness)
    # Not what a platform runs a job's own code in: without it a sandbox waits until a limit acts.
    victims = [launcher, *filter(_is_program, descendants(launcher))]
    victim = victims[int(pick * len(victims))]
    try:
        name = Path(f"/proc/{victim}/cmdline").read_bytes().partition(b"\0")[0].decode()
        os.kill(victim, 9)
    except (FileNotFoundError, ProcessLookupError):
        name = "nobody"
    try:
        running = await starting
    except ExecError:
        return name, None
    async for _ in running.events():
        pass
    return name, await running.wait()


def next_job(harness: Harness) -> Result:
    """Run the next one; it may still meet a launcher that was killed a moment ago, and says so."""
    try:
        return harness.run("bash", "echo again")
    except LauncherLostError:
        return harness.run("bash", "echo again")


def strike(platform: str, kills: int) -> None:
    chance = random.Random(_SEED)
    harness = opened(platform, node="none", python="none")
    ends: list[str] = []
    try:
        for _ in range(kills):
            name, report = harness.do(struck(harness, chance))
            ends.append(name)
            assert report is None or report.status in ENDS
            until = time.monotonic() + 20
            while descendants(launcher_of(harness)) and time.monotonic() < until:
                time.sleep(0.02)
            assert descendants(launcher_of(harness)) == []
            again = next_job(harness)
            assert again.stdout == b"again\n"
            assert again.report.status is JobStatus.SUCCEEDED
        launcher = launcher_of(harness)
    finally:
        harness.close()
    kinds = 2 if kills < MANY else 3  # of a few, chance may spare one
    assert len(set(ends)) >= kinds, "the kills met too few kinds of processes"
    mounts = Path("/proc/self/mountinfo").read_text()
    assert " /bundle " not in mounts
    assert groups_left(f"rookhold-{launcher}-") == []


@pytest.mark.parametrize("platform", PLATFORMS)
def test_nine_kills_at_random_moments_are_survived(platform: str) -> None:
    strike(platform, 9)


@pytest.mark.soak
@pytest.mark.parametrize("platform", PLATFORMS)
def test_two_hundred_kills_at_random_moments_are_survived(platform: str) -> None:
    strike(platform, MANY)
