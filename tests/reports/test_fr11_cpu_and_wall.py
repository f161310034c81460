"""FR-11: CPU and wall limits are exact to their step, and the right one is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from reports.site import Ran, Site

CPU_LIMITS = {"cgroup-cpu", "supervisor-cpu", "rlimit-cpu"}  # each counts; none is a guess
THREADS = """
import hashlib, threading
part = bytes(1 << 20)
def spin():
    while True: hashlib.sha256(part)  # without the interpreter's lock
threads = [threading.Thread(target=spin) for _ in range(4)]
[thread.start() for thread in threads]
"""
EVASIVE = """
import signal
signal.signal(signal.SIGXCPU, lambda *_: None)
while True: pass
"""


def check_cpu_limit(ran: Ran) -> None:
    assert ran.result.status == "failed"
    assert ran.receipt["killed_by"] in CPU_LIMITS
    assert ran.rules == ["cpu_limit_exceeded"]
    assert ran.result.violations[0].detail == {"cpu_seconds": 1}
    assert ran.result.exit_code is None
    # A step is at most 0.1 s; ten times that, as for every deadline here.
    assert 950_000 <= ran.receipt["resource_usage"]["cpu_time_usec"] < 2_000_000
    assert ran.receipt["duration_ms"] < 5000 + 5000


def test_a_spinning_loop_meets_the_cpu_limit(anywhere: Site) -> None:
    limits = {"cpu_seconds": 1, "wall_seconds": 30}
    check_cpu_limit(anywhere.run("python", "while True: pass", limits=limits))


def test_a_sleeper_meets_the_wall_limit(anywhere: Site) -> None:
    limits = {"cpu_seconds": 5, "wall_seconds": 1}
    ran = anywhere.run("python", "import time; time.sleep(10)", limits=limits)
    assert ran.ended == ("timed_out", "wall-clock")
    assert ran.rules == ["wall_clock_exceeded"]
    assert 1000 <= ran.receipt["duration_ms"] < 9000
    assert ran.receipt["resource_usage"]["cpu_time_usec"] < 1_000_000


def test_threads_share_one_cpu_limit(anywhere: Site) -> None:
    limits = {"cpu_seconds": 1, "wall_seconds": 30}
    check_cpu_limit(anywhere.run("python", THREADS, limits=limits))


def test_catching_the_signal_does_not_help(sandbox: Site) -> None:
    limits = {"cpu_seconds": 1, "wall_seconds": 30}
    check_cpu_limit(sandbox.run("python", EVASIVE, limits=limits))


@pytest.mark.parametrize("number", [9, 24, 31])
def test_a_signal_of_the_jobs_own_is_not_taken_for_a_limit(anywhere: Site, number: int) -> None:
    ran = anywhere.run("python", f"import os; os.kill(os.getpid(), {number})")
    assert ran.ended == ("failed", f"signal-{number}")
    assert ran.rules == []
