"""`rookhold jobs`: the tenant's jobs, newest first."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

import click

from rookhold_cli import gateway, output

if TYPE_CHECKING:
    from rookhold import Job

_STATUSES = (
    "queued",
    "running",
    "succeeded",
    "failed",
    "timed_out",
    "oom_killed",
    "cancelled",
    "error",
)


@click.command("jobs")
@click.option("--status", type=click.Choice(_STATUSES), help="Only jobs with this status.")
@click.option("--language", metavar="NAME", help="Only jobs in this language.")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(status: str | None, language: str | None, limit: int, as_json: bool) -> None:
    """List your jobs, newest first."""
    target = gateway.existing()
    with target.client() as client:
        page = min(limit, 500)
        found = list(islice(client.jobs(status=status, language=language, page_size=page), limit))
    if as_json:
        output.as_json({"items": [asdict(job) for job in found]})
        return
    if not found:
        wanted = "no such jobs" if status or language else "no jobs"
        output.say(f"{wanted} of yours at the gateway {target.base_url}")
        return
    output.table(
        ("job", "language", "status", "exit", "started", "took"), (_row(job) for job in found)
    )


def _row(job: Job) -> tuple[str, ...]:
    began, ended = job.started_at_ms, job.finished_at_ms
    return (
        job.job_id,
        job.language,
        job.status,
        "" if job.exit_code is None else str(job.exit_code),
        "" if began is None else when(began),
        "" if began is None or ended is None else f"{(ended - began) / 1000:.2f} s",
    )


def when(at_ms: int) -> str:
    """Show a time in the reader's own zone."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone()
    return moment.strftime("%Y-%m-%d %H:%M:%S")
