"""FR-13: a job that is cancelled while it waits never runs."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from gateway import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from reports.site import Site

WORKERS = 2
RACES, SOAK_RACES = 24, 400
IN_THE_QUEUE = 40  # at once; a tenant may have 64


def test_a_job_cancelled_in_the_queue_never_runs(sandbox: Site, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    busy = "echo busy; sleep 20"
    slots = [sandbox.submit("bash", busy, limits={"wall_seconds": 60}) for _ in range(WORKERS)]
    # what it printed is stored: it really runs, and is not merely about to be launched
    assert eventually(60, lambda: all(sandbox.client.result(j, 0).stdout for j in slots))

    code = f"echo ran > output/marker; echo ran > '{marker}'; echo ran"
    waiting = sandbox.submit("bash", code, outputs=["output/marker"])
    assert sandbox.client.job(waiting).queue_position == 1
    first = sandbox.client.cancel(waiting)
    assert first.job.status == "cancelled"
    assert sandbox.client.job(waiting).status == "cancelled"
    again = sandbox.client.cancel(waiting)
    assert again.already_terminal
    assert again == sandbox.client.cancel(waiting)
    assert again.job == first.job

    for job_id in slots:
        sandbox.client.cancel(job_id)
        assert sandbox.finish(job_id).ended == ("cancelled", "cancelled")
    for _ in range(WORKERS):  # the slots are free, and work goes on
        assert sandbox.run("bash", "echo next").result.stdout == "next\n"

    detail = sandbox.client.job(waiting)
    receipt = detail.receipt
    assert receipt is not None
    assert (detail.status, detail.started_at_ms, detail.exit_code) == ("cancelled", None, None)
    assert receipt["killed_by"] == "cancelled_before_start"
    assert (receipt["started_at_ms"], receipt["duration_ms"]) == (None, 0)
    assert (receipt["resource_usage"], receipt["executor_output"]) == (None, None)
    assert [event.kind for event in sandbox.events(waiting)] == ["accepted", "finished"]
    result = sandbox.client.result(waiting)
    assert (result.stdout_bytes, result.artifacts) == (b"", ())
    assert not marker.exists()


def run_races(site: Site, count: int) -> None:
    """Cancel jobs while workers take them: whoever was told `cancelled` was never started."""
    dice = random.Random(13)
    never_started = 0
    with ThreadPoolExecutor(4) as threads:
        for begin in range(0, count, IN_THE_QUEUE):
            jobs = [
                site.submit("bash", "echo ran > output/marker", outputs=["output/marker"])
                for _ in range(min(IN_THE_QUEUE, count - begin))
            ]
            answers = threads.map(site.client.cancel, dice.sample(jobs, len(jobs)))
            told = {answer.job.job_id: answer for answer in answers}
            for job_id in jobs:
                ended = site.finish(job_id)
                kinds = [event.kind for event in site.events(job_id)]
                answer = told[job_id]
                in_the_queue = answer.job.status == "cancelled" and not answer.already_terminal
                never_started += in_the_queue
                if in_the_queue:
                    assert kinds == ["accepted", "finished"]
                    assert ended.ended == ("cancelled", "cancelled_before_start")
                    assert ended.result.artifacts == ()
                else:
                    assert ended.result.status in ("succeeded", "cancelled")
                    assert kinds.count("finished") == 1
    assert never_started > count // 10, "hardly any was cancelled in the queue"


def test_cancels_that_race_with_the_workers_tell_the_truth(sandbox: Site) -> None:
    run_races(sandbox, RACES)


@pytest.mark.soak
def test_hundreds_of_cancels_that_race_with_the_workers_tell_the_truth(sandbox: Site) -> None:
    run_races(sandbox, SOAK_RACES)
