"""Where a job ends: at each of its limits, and when it is cancelled."""

from __future__ import annotations

from errno import EFBIG, ENOSPC
from typing import TYPE_CHECKING

import pytest
from claims.backends import NAMESPACES
from isolating import NAMED

if TYPE_CHECKING:
    from collections.abc import Callable

    from claims.jobs import Jobs

MIB = 1 << 20
QUOTA_BYTES = 64 * MIB
QUOTA_FILES = 16_384
# To make as many files takes a sandbox with its own kernel half a minute.
FEW_FILES_AT_ONCE = [
    *(pytest.param(each, marks=NAMED[each].marks) for each in NAMESPACES),
    pytest.param("gvisor", marks=[*NAMED["gvisor"].marks, pytest.mark.soak]),
]

# Every program stops by itself soon after the limit that it should meet.
FILL = """
import json, os
places, part, held = ["/work", "/tmp", "/dev/shm"], bytes(1 << 20), 0
error = None
try:
    while held < 100 << 20:
        with open(f"{places[(held >> 20) % 3]}/{held}", "wb", buffering=0) as file:
            held += file.write(part)
except OSError as caught:
    error = caught.errno
print(json.dumps([held, error]))
"""
MANY_FILES = """
import json, os
places, made, error = ["/work", "/tmp", "/dev/shm"], 0, None
try:
    while made < 20_000:
        os.close(os.open(f"{places[made % 3]}/{made}", os.O_CREAT | os.O_WRONLY))
        made += 1
except OSError as caught:
    error = caught.errno
print(json.dumps([made, error]))
"""
LONG_FILE = """
import json, os, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file, written, error = os.open("long", os.O_CREAT | os.O_WRONLY), 0, None
try:
    while written < 8 << 20:
        written += os.write(file, bytes(1 << 16))
except OSError as caught:
    error = caught.errno
print(json.dumps([written, error]))
"""
FORKS = """
import json, os, time
made = 0
try:
    while made < 40:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
except BlockingIOError:
    pass
print(json.dumps(made))
"""
MEMORY = """
held = bytearray(160 << 20)
held[::4096] = bytes([1]) * len(held[::4096])
print("true")
"""
BUSY = """
import os, time
for _ in range(2):
    if os.fork() == 0:
        while time.process_time() < 3: pass
        os._exit(0)
os.wait(), os.wait()
print("true")
"""
SLEEP = """
print("started", flush=True)
import time; time.sleep(3)
"""


def check_quota(jobs: Jobs) -> None:
    held, error = jobs.ask(FILL, limits={"mem_mb": 512})
    assert (held <= QUOTA_BYTES, error) == (True, ENOSPC), "no quota was met"


def check_file_count(jobs: Jobs) -> None:
    made, error = jobs.ask(MANY_FILES, limits={"wall_seconds": 120, "cpu_seconds": 120})
    assert (made <= QUOTA_FILES, error) == (True, ENOSPC), "no quota was met"


def check_file_size(jobs: Jobs) -> None:
    answer = jobs.ask(LONG_FILE, limits={"max_file_mb": 2})
    assert answer == [2 * MIB, EFBIG], "a file grew past its limit"


def check_processes(jobs: Jobs) -> None:
    made = jobs.ask(FORKS, limits=jobs.limits(max_pids=20))
    assert 5 <= made <= 20, "more processes were made than the limit allows"


def check_memory(jobs: Jobs) -> None:
    ran = jobs.run(MEMORY, limits=jobs.limits(mem_mb=64))
    ended = (ran.result.status, ran.receipt["killed_by"])
    assert ended == ("oom_killed", "cgroup-oom"), "the memory limit did not end it"


def check_cpu(jobs: Jobs) -> None:
    ran = jobs.run(BUSY, limits={"cpu_seconds": 1, "wall_seconds": 60})
    ended = (ran.result.status, ran.receipt["killed_by"])
    assert ended == ("failed", "cgroup-cpu"), "its group did not end it"
    assert ran.receipt["resource_usage"]["cpu_time_usec"] < 3_000_000


def check_wall(jobs: Jobs) -> None:
    ran = jobs.run(SLEEP, limits={"wall_seconds": 1})
    ended = (ran.result.status, ran.receipt["killed_by"])
    assert ended == ("timed_out", "wall-clock"), "the wall limit did not end it"


def check_cancel(jobs: Jobs) -> None:
    job_id = jobs.submit(SLEEP)
    with jobs.gateway.client() as client:
        next(event for event in client.events(job_id, follow=True) if event.kind == "stdout")
        client.cancel(job_id)
    ran = jobs.finish(job_id)
    ended = (ran.result.status, ran.receipt["killed_by"])
    assert ended == ("cancelled", "cancelled"), "the cancel did not end it"


def where_observed(jobs: Jobs, control: str, limit: str, check: Callable[[Jobs], None]) -> None:
    """Check a limit where the host lets us enforce it; elsewhere the receipt must say so."""
    receipt = jobs.receipt()
    if control in receipt["controls"]:
        check(jobs)
    else:
        assert receipt["effective_limits"][limit] is None


def test_workspace_quota(confined: Jobs) -> None:
    check_quota(confined)


def test_workspace_quota_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="no quota was met"):
        check_quota(weakened.without("workspace-quota"))


@pytest.mark.parametrize("backend", FEW_FILES_AT_ONCE, indirect=True)
def test_workspace_file_count(confined: Jobs) -> None:
    check_file_count(confined)


@pytest.mark.parametrize("backend", FEW_FILES_AT_ONCE, indirect=True)
def test_workspace_file_count_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="no quota was met"):
        check_file_count(weakened.without("workspace-quota"))


def test_file_size_limit(confined: Jobs) -> None:
    check_file_size(confined)


def test_file_size_limit_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="a file grew past its limit"):
        check_file_size(weakened.without("rlimits"))


def test_process_limit(confined: Jobs) -> None:
    check_processes(confined)


def test_process_limit_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="more processes were made"):
        check_processes(weakened.without("cgroup-pids", "rlimits"))


def test_memory_limit(confined: Jobs) -> None:
    where_observed(confined, "cgroup-memory", "mem_mb", check_memory)


def test_memory_limit_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="the memory limit did not end it"):
        check_memory(weakened.without("cgroup-memory"))


def test_cpu_limit(confined: Jobs) -> None:
    where_observed(confined, "cgroup-cpu", "cpu_seconds", check_cpu)


def test_cpu_limit_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="its group did not end it"):
        check_cpu(weakened.without("cgroup-cpu"))


def test_wall_limit(confined: Jobs) -> None:
    check_wall(confined)


def test_wall_limit_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="the wall limit did not end it"):
        check_wall(weakened.without("wall"))


def test_wall_limit_on_off(watched: Jobs) -> None:
    check_wall(watched)


def test_wall_limit_on_off_sabotaged(unwatched: Jobs) -> None:
    with pytest.raises(AssertionError, match="the wall limit did not end it"):
        check_wall(unwatched.without("wall"))


def test_cancel(confined: Jobs) -> None:
    check_cancel(confined)


def test_cancel_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="the cancel did not end it"):
        check_cancel(weakened.without("cancel"))


def test_cancel_on_off(watched: Jobs) -> None:
    check_cancel(watched)


def test_cancel_on_off_sabotaged(unwatched: Jobs) -> None:
    with pytest.raises(AssertionError, match="the cancel did not end it"):
        check_cancel(unwatched.without("cancel"))
