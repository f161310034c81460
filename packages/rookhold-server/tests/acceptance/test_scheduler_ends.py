"""Q7 to Q9, Q11 and Q12: what a shutdown, a fault, a restart and a crash leave of the queue.

Each has a server of its own, in which the moment that the line is about lasts until we have come.
"""

from __future__ import annotations

import json
import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
from altered import altered
from crowd import SECONDS, SLEEP, Crowd
from faults.book import Book
from gateway import eventually
from invariants import problems

from rookhold.errors import RookholdError
from rookhold_server.http.readiness import Readiness
from rookhold_server.jobs.worker import Worker
from rookhold_server.refusal import Refusal

if TYPE_CHECKING:
    from pathlib import Path

WORKER = "from rookhold_server.jobs.worker import Worker, _Road\nimport anyio\n"


@pytest.fixture
def crowd(tmp_path: Path) -> Crowd:
    return Crowd(tmp_path / "home", ("a", "b"), settings={"ROOKHOLD_WORKERS": "2"})


def change(crowd: Crowd, changes: str) -> None:
    crowd.gateway.python = altered(crowd.gateway.home / "python", WORKER + changes)


LATE = """
whole = Worker.take
async def take(self, grant):
    open("taken", "x").close()
    while not self._shop.shutting_down():
        await anyio.sleep(0.002)
    await whole(self, grant)
Worker.take = take
"""


def test_q7_a_worker_that_comes_late_leaves_its_job_queued(crowd: Crowd) -> None:
    change(crowd, LATE)
    taken = crowd.gateway.home / "taken"
    with crowd:
        job_id = crowd.submit("a")
        assert eventually(SECONDS, taken.exists)
        assert crowd.stop() == 0
    with Book(crowd.gateway.database) as book:
        assert (book.status(job_id), book.kinds(job_id)) == ("queued", ["accepted"])


AT_START = """
import os
whole = _Road._start
async def start(self, spec, token):
    started = await whole(self, spec, token)
    while not self._shop.shutting_down() and (token.reason is None or os.path.exists("both")):
        await anyio.sleep(0.002)
    return started
_Road._start = start
"""


def test_q8_a_stop_right_after_the_durable_start_runs_nothing(crowd: Crowd, tmp_path: Path) -> None:
    change(crowd, AT_START)
    marker = tmp_path / "marker"
    code = f"touch '{marker}'; echo ran"
    with crowd:
        cancelled = crowd.submit("a", code)
        assert eventually(SECONDS, lambda: crowd.began("a", cancelled))
        crowd.cancel("a", [cancelled])
        assert crowd.over("a", cancelled).status == "cancelled"
        (crowd.gateway.home / "both").touch()
        stopped, both = crowd.submit("a", code), crowd.submit("a", code)
        assert eventually(SECONDS, lambda: crowd.began("a", stopped) and crowd.began("a", both))
        crowd.cancel("a", [both])
        assert crowd.stop() == 0
    with Book(crowd.gateway.database) as book:
        for job_id, killed_by in (
            (cancelled, "cancelled_before_execution"),
            (stopped, "server_shutdown_before_execution"),
            (both, "server_shutdown_before_execution"),
        ):
            receipt = json.loads(book.receipt(job_id) or "")
            assert (receipt["outcome"], receipt["killed_by"]) == ("cancelled", killed_by)
            assert receipt["bootstrap_ready"] is False
            assert book.kinds(job_id) == ["accepted", "started", "finished"]
    assert not marker.exists()


WORKER_FAILS = """
async def take(self, grant):
    raise KeyError("a fault of ours")
Worker.take = take
"""
WORKER_RETURNS = """
async def run(self):
    await self._shop.scheduling.next()
Worker.run = run
"""
DISPATCHER_FAILS = """
from rookhold_server.jobs.dispatcher import Dispatcher
def hand_over(self):
    if self._queue.running("a") or self._queue._queues:
        raise KeyError("a fault of ours")
Dispatcher._pass = hand_over
"""
DISPATCHER_RETURNS = """
from rookhold_server.jobs.dispatcher import Dispatcher
async def run(self):
    while not self._queue._queues:
        await anyio.sleep(0.002)
Dispatcher.run = run
"""
FAULTS = {
    "a worker fails": (WORKER_FAILS, "failed: KeyError"),
    "a worker returns": (WORKER_RETURNS, "returned unexpectedly"),
    "the dispatcher fails": (DISPATCHER_FAILS, "dispatcher failed: KeyError"),
    "the dispatcher returns": (DISPATCHER_RETURNS, "dispatcher returned unexpectedly"),
}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(name, marks=() if n in (0, 3) else pytest.mark.soak)
        for n, name in enumerate(FAULTS)
    ],
)
def test_q9_a_fault_of_what_runs_jobs_ends_the_server_with_1(crowd: Crowd, fault: str) -> None:
    changes, diagnosis = FAULTS[fault]
    change(crowd, changes)
    with crowd:
        job_id = crowd.submit("a")
        process = crowd.gateway.process
        assert process is not None
        assert process.wait(SECONDS) == 1
    log = crowd.gateway.log.read_text("utf-8")
    assert diagnosis in log
    assert "a fault of ours" not in log.replace(
        "KeyError: 'a fault of ours'", ""
    )  # in a trace only
    with Book(crowd.gateway.database) as book:
        assert book.status(job_id) == "queued"


FAILS_AT_LAST = """
whole = Worker.take
async def take(self, grant):
    await whole(self, grant)
    raise OSError("too late")
Worker.take = take
"""


def test_q9_a_fault_found_while_joining_is_still_reported(crowd: Crowd) -> None:
    change(crowd, FAILS_AT_LAST)
    with crowd:
        (job_id,) = crowd.hold("a", 1)
        assert crowd.stop() == 1
    assert "failed: OSError" in crowd.gateway.log.read_text("utf-8")
    with Book(crowd.gateway.database) as book:
        assert book.status(job_id) == "cancelled"


@pytest.mark.anyio
async def test_q9_from_the_fault_on_it_is_not_ready_and_admits_nothing(
    kit: Any, submit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside, where the moment between the fault and the end can be looked at."""

    async def broken(self: Worker, grant: Any) -> None:
        raise KeyError("a fault of ours")

    monkeypatch.setattr(Worker, "take", broken)
    async with kit.running() as engine:
        readiness = Readiness(engine)
        await readiness.probe()
        assert readiness.refusal() is None
        await submit(engine)
        await engine.shutdown_event.wait()
        assert readiness.refusal() == "shutting_down"
        assert engine._admission.closed
        with pytest.raises(Refusal) as refused:
            await submit(engine)
        assert refused.value.code == "shutting_down"
    assert engine.fatal.endswith("failed: KeyError")


SEEN = """
from rookhold_server.jobs import worker
execute = worker.execute
async def seen(executor, plan, **more):
    with open("seen", "a") as file:
        print(plan.job_id, plan.limits.mem_mb, file=file)
    return await execute(executor, plan, **more)
worker.execute = seen
"""


def test_q11_admitted_memory_is_not_raised_by_a_restart_but_lowered(crowd: Crowd) -> None:
    change(crowd, SEEN)
    settings = crowd.gateway.settings
    settings["ROOKHOLD_WORKERS"] = "1"
    settings["ROOKHOLD_MAX_JOB_MEM_MB"] = "512"
    with crowd:
        crowd.hold("b", 1)
        under_more = crowd.submit("a", SLEEP, mem_mb=2048)
        under_less = crowd.submit("a", mem_mb=2048)
        assert crowd.stop() == 0
    settings["ROOKHOLD_MAX_JOB_MEM_MB"] = "1024"
    with crowd:
        assert eventually(SECONDS, lambda: crowd.began("a", under_more))
        assert crowd.status("a", under_less) == "queued"
        assert crowd.stop() == 0
    settings["ROOKHOLD_MAX_JOB_MEM_MB"] = "256"
    with crowd:
        job = crowd.over("a", under_less)
    assert job.status == "succeeded"
    assert job.requested_spec["limits"]["mem_mb"] == 2048
    lines = (crowd.gateway.home / "seen").read_text("ascii").split("\n")
    assert f"{under_more} 512" in lines
    assert f"{under_less} 256" in lines
    with Book(crowd.gateway.database) as book:
        text = "SELECT DISTINCT admitted_mem_mb FROM jobs WHERE tenant = 'a'"
        assert book.db.execute(text).fetchall() == [(512,)]


def test_q12_after_a_crash_what_was_queued_runs_and_what_ran_is_an_error(crowd: Crowd) -> None:
    """Once where it is known what runs, and once at some moment; `tests/faults` has hundreds."""
    with crowd:
        running = crowd.hold("a", 2)
        queued = crowd.submit_many("b", 3, "echo ran")
        crowd.kill()
    with crowd:
        for job_id in running:
            job = crowd.over("a", job_id)
            assert job.receipt is not None
            assert (job.status, job.receipt["killed_by"]) == ("error", "server_restarted")
        assert {crowd.over("b", job_id).status for job_id in queued} == {"succeeded"}
        assert crowd.kinds("b", queued[0]) == ["accepted", "started", "stdout", "finished"]
        later = kill_among_submissions(crowd, random.Random(12).randrange(5, 40))
    with crowd, Book(crowd.gateway.database) as book:
        assert eventually(SECONDS, lambda: book.count_open() == 0)
        jobs = book.job_ids()
    assert {*running, *queued, *later} <= set(jobs)
    assert problems(crowd.gateway.database, jobs) == []


def kill_among_submissions(crowd: Crowd, number: int) -> list[str]:
    """Kill the server soon after so many were accepted; return those and what came after."""
    accepted: list[str] = []

    def submit() -> None:
        try:
            for each in range(1000):
                accepted.append(crowd.submit("ab"[each % 2], f"sleep 0.0{each % 4}"))
        except RookholdError:
            return  # the server is gone, or has enough

    traffic = threading.Thread(target=submit)
    traffic.start()
    assert eventually(SECONDS, lambda: len(accepted) >= number)
    crowd.gateway.kill()
    traffic.join(SECONDS)
    crowd.disconnect()
    return accepted
