"""The limits of a job's processes where the server itself was started with lower ones."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookhold_exec.backends.launched import LaunchedExecutor
from rookhold_exec.executor import Violation
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness, Result
from rookhold_types.limits import Limits
from rookhold_types.states import JobStatus

pytestmark = pytest.mark.linux_ns
MIB = 1024 * 1024
ASK = "ulimit -Hn; ulimit -Hu; ulimit -Hf"


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    executor = choose_backend("namespaces-dev", ExecSettings(jobs_root=str(tmp_path)))
    harness = Harness(executor)
    harness.do(executor.open())
    yield harness
    harness.close()


def lowered(harness: Harness, kind: int, value: int) -> Result:
    """Run a job by a launcher that has a lower hard limit, as it would inherit it."""
    assert isinstance(harness.executor, LaunchedExecutor)
    assert harness.executor._launcher is not None
    assert harness.executor._launcher.pid is not None
    resource.prlimit(harness.executor._launcher.pid, kind, (value, value))
    result = harness.run("bash", ASK, limits=Limits(max_pids=64, max_file_mb=8))
    assert result.report.status is JobStatus.SUCCEEDED
    return result


def test_a_limit_that_is_not_told_is_lowered_and_everything_is_claimed(harness: Harness) -> None:
    result = lowered(harness, resource.RLIMIT_NOFILE, 800)
    provenance = result.report.provenance
    counted = "cgroup-pids" in provenance.controls  # then the rlimit is a backstop above
    assert result.stdout.split() == [b"800", b"%d" % (64 + counted), b"8192"]
    assert "rlimits" in provenance.controls
    assert provenance.limit_enforcement.file
    assert provenance.effective_limits.max_file_mb == 8


def test_a_file_limit_that_is_not_the_one_asked_for_is_not_claimed(harness: Harness) -> None:
    result = lowered(harness, resource.RLIMIT_FSIZE, 4 * MIB)
    assert result.stdout.split()[2] == b"4096", "it holds all the same"
    provenance = result.report.provenance
    assert "rlimits" not in provenance.controls
    assert not provenance.limit_enforcement.file
    assert provenance.effective_limits.max_file_mb is None


def test_a_process_limit_that_is_not_the_one_asked_for_is_not_claimed(harness: Harness) -> None:
    result = lowered(harness, resource.RLIMIT_NPROC, 32)
    assert result.stdout.split()[1] == b"32"
    provenance = result.report.provenance
    assert "rlimits" not in provenance.controls
    counted = "cgroup-pids" in provenance.controls
    assert provenance.limit_enforcement.pids is counted


FORKS = """
import os, time
made = 0
try:
    while made < 50:
        if os.fork() == 0:
            time.sleep(60)
        made += 1
except BlockingIOError:
    pass
print(made)
"""


def test_a_process_limit_that_refused_a_fork_is_told_where_a_group_counts_them(
    harness: Harness,
) -> None:
    result = harness.run("python", FORKS, limits=Limits(max_pids=16))
    assert (result.stdout, result.report.status) == (b"15\n", JobStatus.SUCCEEDED)
    told = [event for event in result.events if isinstance(event, Violation)]
    if "cgroup-pids" in result.report.provenance.controls:
        assert told == [Violation("process_limit_reached", {"max_pids": 16})]
    else:
        assert told == []


def test_a_process_limit_that_refused_nothing_is_not_told(harness: Harness) -> None:
    result = harness.run("python", FORKS.replace("50", "15"), limits=Limits(max_pids=16))
    assert (result.stdout, result.rules) == (b"15\n", [])


def test_a_process_limit_without_its_group_is_exact_and_not_told(tmp_path: Path) -> None:
    settings = ExecSettings(jobs_root=str(tmp_path), faults=frozenset({"cgroup-pids"}))
    harness = Harness(choose_backend("namespaces-dev", settings))
    harness.do(harness.executor.open())
    try:
        result = harness.run("python", FORKS, limits=Limits(max_pids=16))
    finally:
        harness.close()
    assert "cgroup-pids" not in result.report.provenance.controls
    assert result.report.provenance.effective_limits.max_pids == 16
    assert (result.stdout, result.rules) == (b"15\n", [])
