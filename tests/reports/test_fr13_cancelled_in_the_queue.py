"""FR-13: a job that is cancelled while it waits never runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from reports.site import Site

WORKERS = 2


def test_a_job_cancelled_in_the_queue_never_runs(site: Site, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    busy = "echo busy; sleep 20"
    slots = [site.submit("bash", busy, limits={"wall_seconds": 60}) for _ in range(WORKERS)]
    # what it printed is stored: it really runs, and is not merely about to be launched
    assert eventually(60, lambda: all(site.client.result(j, 0).stdout for j in slots))

    code = f"echo ran > output/marker; echo ran > '{marker}'; echo ran"
    waiting = site.submit("bash", code, outputs=["output/marker"])
    assert site.client.job(waiting).queue_position == 1
    first = site.client.cancel(waiting)
    assert first.job.status == "cancelled"
    assert site.client.job(waiting).status == "cancelled"
    again = site.client.cancel(waiting)
    assert again.already_terminal
    assert again == site.client.cancel(waiting)
    assert again.job == first.job

    for job_id in slots:
        site.client.cancel(job_id)
        assert site.finish(job_id).ended == ("cancelled", "cancelled")
    for _ in range(WORKERS):  # the slots are free, and work goes on
        assert site.run("bash", "echo next").result.stdout == "next\n"

    detail = site.client.job(waiting)
    receipt = detail.receipt
    assert receipt is not None
    assert (detail.status, detail.started_at_ms, detail.exit_code) == ("cancelled", None, None)
    assert receipt["killed_by"] == "cancelled_before_start"
    assert (receipt["started_at_ms"], receipt["duration_ms"]) == (None, 0)
    assert (receipt["resource_usage"], receipt["executor_output"]) == (None, None)
    assert [event.kind for event in site.events(waiting)] == ["accepted", "finished"]
    result = site.client.result(waiting)
    assert (result.stdout_bytes, result.artifacts) == (b"", ())
    assert not marker.exists()
