"""A job's supervisor that is killed, alone or with the launcher: nothing of the job stays."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from rookhold_exec.backends.launched import LaunchedExecutor
from rookhold_exec.executor import ExecEvent, KillReason, OutputRecord, Running, Violation
from rookhold_exec.launcher.family import descendants
from rookhold_exec.run import SandboxRun
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness
from rookhold_types.states import JobStatus

BACKENDS = [pytest.param("namespaces-dev", marks=pytest.mark.linux_ns), "off"]
_TREE = "(setsid sleep 60 &); sleep 61 & sleep 62 & echo up; wait"


def opened(backend: str, root: Path) -> Harness:
    harness = Harness(choose_backend(backend, ExecSettings(jobs_root=str(root), node="none")))
    harness.do(harness.executor.open())
    return harness


@pytest.fixture(params=BACKENDS)
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    harness = opened(request.param, tmp_path)
    yield harness
    harness.close()


def launcher_of(harness: Harness) -> int:
    assert isinstance(harness.executor, LaunchedExecutor)
    assert harness.executor._launcher is not None
    return harness.executor._launcher.pid


def living(pids: list[int]) -> list[int]:
    found = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        found += [pid] if state not in "ZX" else []
    return found


def all_end(pids: list[int]) -> bool:
    until = time.monotonic() + 10
    while living(pids) and time.monotonic() < until:
        time.sleep(0.01)
    return not living(pids)


async def begun(harness: Harness, code: str) -> tuple[Running, AsyncIterator[ExecEvent]]:
    running = await harness.executor.start(harness.plan("bash", code))
    events = running.events()
    assert isinstance(await anext(events), OutputRecord)
    return running, events


async def lost(running: Running, events: AsyncIterator[ExecEvent]) -> bool:
    last = [event async for event in events][-1]
    report = await running.wait()
    return report.status is JobStatus.ERROR and isinstance(last, Violation)


def test_a_killed_supervisor_takes_its_whole_job_with_it_and_no_other(
    harness: Harness, tmp_path: Path
) -> None:
    async def scenario() -> None:
        launcher = launcher_of(harness)
        running, events = await begun(harness, _TREE)
        [first] = [pid for pid in descendants(launcher) if pid in _children(launcher)]
        doomed = descendants(launcher)
        other = await harness.executor.start(harness.plan("bash", "sleep 1; echo ok", slot=1))
        os.kill(first, signal.SIGKILL)
        assert await lost(running, events)
        assert all_end(doomed)
        spared = [event async for event in other.events()]
        assert [event.line for event in spared if isinstance(event, OutputRecord)] == ["ok"]
        assert (await other.wait()).status is JobStatus.SUCCEEDED
        assert launcher_of(harness) == launcher
        again = await harness.finish(harness.plan("bash", "echo again"))
        assert again.stdout == b"again\n"

    harness.do(scenario())
    assert list(tmp_path.iterdir()) == []


def _children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_launcher_and_supervisor_killed_at_once_leave_no_process_and_no_directory(
    harness: Harness, tmp_path: Path
) -> None:
    async def scenario() -> None:
        launcher = launcher_of(harness)
        running, events = await begun(harness, "echo up; exec sleep 60")
        doomed = [launcher, *descendants(launcher)]
        for pid in doomed[:2]:
            os.kill(pid, signal.SIGKILL)
        assert await lost(running, events)
        assert all_end(doomed)
        again = await harness.finish(harness.plan("bash", "echo again"))
        assert again.stdout == b"again\n"

    harness.do(scenario())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_next_start_sweeps_directories_that_nobody_holds(backend: str, tmp_path: Path) -> None:
    left = tmp_path / "job-0192"
    left.mkdir()
    (left / "job.sh").write_text("echo a secret")
    opened(backend, tmp_path).close()
    assert list(tmp_path.iterdir()) == []


def test_a_second_gateway_with_the_same_root_takes_nothing_from_the_first(tmp_path: Path) -> None:
    harness = opened("off", tmp_path)

    async def scenario() -> None:
        running, events = await begun(harness, "echo up; read -t 60 < /dev/zero; cat job.sh")
        opened_beside = choose_backend("off", ExecSettings(jobs_root=str(tmp_path), node="none"))
        await opened_beside.open()
        await opened_beside.close()
        assert len(list(tmp_path.iterdir())) == 1
        running.kill(KillReason.CANCELLED)
        assert [event async for event in events]

    harness.do(scenario())
    harness.close()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("victim", ["launcher", "supervisor"])
def test_a_kill_during_a_probe_costs_no_language(
    backend: str, victim: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    struck = []
    begin = SandboxRun.begin

    async def begin_and_die(self: SandboxRun, message: dict[str, object], *rest: Any) -> None:
        await begin(self, {**message, "argv": [b"/bin/sleep", b"0.5"]}, *rest)
        if len(struck) < 2:
            launcher = self._launcher.pid
            struck.append(launcher)
            os.kill(launcher if victim == "launcher" else descendants(launcher)[0], signal.SIGKILL)

    monkeypatch.setattr(SandboxRun, "begin", begin_and_die)
    harness = opened(backend, tmp_path)
    try:
        assert len(struck) == 2
        assert set(harness.executor.posture.languages) == {"python", "bash"}
    finally:
        harness.close()
