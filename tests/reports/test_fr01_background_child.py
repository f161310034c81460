"""FR-01: a child in the background that keeps the pipe open holds nothing up and is not left."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

from reports.site import running

if TYPE_CHECKING:
    from reports.site import Site

TICKER = """
import time
with open("output/ticks", "w", buffering=1) as ticks:
    while True:
        print("tick", file=ticks)
        time.sleep(0.2)
"""
DAEMON = f"""
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", {TICKER!r}, sys.stdin.read()])
    os._exit(0)
os.wait()
time.sleep(1)
print(os.getcwd(), flush=True)
"""


def unique_seconds() -> str:
    return f"60.{secrets.randbelow(10**9):09}"


def test_a_parent_that_exits_ends_the_job_at_once(anywhere: Site) -> None:
    seconds = unique_seconds()
    code = f"(setsid sleep {seconds} >&1 &) ; sleep 0.1; echo parent-done"
    ran = anywhere.run("bash", code, limits={"wall_seconds": 20})
    left = [*running(seconds), *anywhere.left_over()]
    assert ran.ended == ("succeeded", None)
    assert ran.result.stdout == "parent-done\n"
    assert left == []
    assert ran.receipt["duration_ms"] < 10_000
    assert ran.seconds < 15
    assert ran.agrees_with_the_clock()


def test_a_parent_that_never_ends_meets_the_wall_limit_in_time(anywhere: Site) -> None:
    first, second = unique_seconds(), unique_seconds()
    code = f"setsid sleep {first} & sleep {second}"
    ran = anywhere.run("bash", code, limits={"wall_seconds": 2})
    left = [*running(first), *running(second), *anywhere.left_over()]
    assert ran.ended == ("timed_out", "wall-clock")
    assert ran.rules == ["wall_clock_exceeded"]
    assert left == []
    assert 2000 <= ran.receipt["duration_ms"] < 10_000
    assert 2 <= ran.seconds < 15
    assert ran.agrees_with_the_clock()


def test_a_daemon_has_stopped_writing_before_the_result_is_published(anywhere: Site) -> None:
    name = secrets.token_hex(16)
    ran = anywhere.run("python", DAEMON, stdin=name, outputs=["output/ticks"])
    left = [*running(name), *anywhere.left_over()]
    assert ran.ended == ("succeeded", None)
    assert left == [], "a process of the job is alive"
    ticks = ran.result.artifacts[0].content
    assert ticks.count(b"tick\n") in range(2, 100)
    assert ticks.replace(b"tick\n", b"") == b""
    if not anywhere.confines:  # its folder was on the host: gone, and not made again
        folder = Path(ran.result.stdout.strip())
        time.sleep(0.5)
        assert not folder.exists()
