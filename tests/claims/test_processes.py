"""What a job can see and keep of processes: its own, while it lasts."""

from __future__ import annotations

import json
import os
import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gateway import eventually

if TYPE_CHECKING:
    from claims.jobs import Jobs

OTHERS = """
import errno, json, os, subprocess
child = subprocess.Popen(["sleep", "60"])
own = {1, os.getpid(), child.pid}
seen = {int(name) for name in os.listdir("/proc") if name.isdigit()}
for pid in json.loads(input()):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        continue
    except PermissionError:
        pass
    seen.add(pid)
child.kill()
print(json.dumps(sorted(seen - own)))
"""
LEAVER = """
import subprocess
left = subprocess.Popen(["sleep", "{seconds}"], start_new_session=True)
print(left.pid)
"""


def live_processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def running(argument: str) -> list[int]:
    """Return the processes of this host that have `argument` in their command line."""
    found = []
    for pid in live_processes():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it ended while we looked
        if argument.encode() in arguments:
            found.append(pid)
    return found


def check_others(jobs: Jobs) -> None:
    """The host's own processes, the server's and another live job's are all in the list."""
    other = jobs.submit("import time; time.sleep(60)")
    try:
        assert eventually(60, lambda: len(jobs.gateway.processes()) >= 4)
        seen = jobs.ask(OTHERS, stdin=json.dumps([*live_processes(), os.getpid()]))
    finally:
        with jobs.gateway.client() as client:
            client.cancel(other)
    assert seen == [], "a process that is not the job's own was seen"


def check_ending(jobs: Jobs) -> None:
    if jobs.own_kernel:
        check_ending_of_a_sandbox(jobs)
        return
    seconds = f"8.{secrets.randbelow(10**9):09}"
    began = time.monotonic()
    ran = jobs.run(LEAVER.format(seconds=seconds))
    left = running(seconds)
    assert ran.result.status == "succeeded"
    assert time.monotonic() - began < 8, "the end of the child was waited for: nothing was shown"
    assert left == [], "a process outlived its job"


def check_ending_of_a_sandbox(jobs: Jobs) -> None:
    """None of its processes is one of the host: they end with their sandbox, or live on in it."""
    job_id = jobs.submit("print(flush=True)\nimport time; time.sleep(20)")
    with jobs.gateway.client() as client:
        next(event for event in client.events(job_id, follow=True) if event.kind == "stdout")
        lived = jobs.runtime()
        client.cancel(job_id)
    jobs.finish(job_id)
    left = jobs.runtime()
    assert lived
    assert left == [], "a process outlived its job"


def test_own_processes_only(confined: Jobs) -> None:
    check_others(confined)


@pytest.mark.root  # without it there is no sandbox without a PID namespace
def test_own_processes_only_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="not the job's own was seen"):
        check_others(weakened.without("own-kernel" if weakened.own_kernel else "pid-namespace"))


def test_nothing_outlives_a_job(confined: Jobs) -> None:
    check_ending(confined)


@pytest.mark.root  # without it there is no sandbox without a PID namespace
def test_nothing_outlives_a_job_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="a process outlived its job"):
        check_ending(weakened.without("pid-namespace", "ending"))


def test_nothing_outlives_a_job_on_off(watched: Jobs) -> None:
    check_ending(watched)


def test_nothing_outlives_a_job_on_off_sabotaged(unwatched: Jobs) -> None:
    with pytest.raises(AssertionError, match="a process outlived its job"):
        check_ending(unwatched.without("ending"))
