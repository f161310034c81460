"""`rookhold cancel`: ask for a job's end."""

from __future__ import annotations

import click

from rookhold_cli import gateway, output


@click.command("cancel")
@click.argument("job_id", metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(job_id: str, as_json: bool) -> None:
    """Ask for the end of JOB. One that has ended already stays as it is."""
    with gateway.existing().client() as client:
        asked = client.cancel(job_id)
    if as_json:
        output.as_json(
            {
                "job_id": asked.job.job_id,
                "status": asked.job.status,
                "cancellation_requested": asked.cancellation_requested,
                "already_terminal": asked.already_terminal,
            }
        )
    elif asked.already_terminal:
        output.line(f"nothing to do: the job is {output.plain(asked.job.status)}")
    else:
        output.line("cancellation requested")
