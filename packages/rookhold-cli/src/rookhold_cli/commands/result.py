"""`rookhold result`: what a job printed, and its exit code; optionally its evidence."""

from __future__ import annotations

from pathlib import Path

import click

from rookhold_cli import ending, evidence, gateway, keeping, output
from rookhold_cli.errors import UsageError
from rookhold_cli.exits import of_job


@click.command("result")
@click.argument("job_id", metavar="JOB")
@click.option("--wait", is_flag=True, help="Wait for the job's end.")
@click.option(
    "--evidence",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep the job's evidence in DIR, and check it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the gateway's own document.")
def command(job_id: str, wait: bool, folder: Path | None, as_json: bool) -> int:
    """Print what JOB printed and end with its exit code, as run would have.

    A job that still runs needs --wait.
    """
    if folder is not None:
        evidence.make_folder(folder)
    with gateway.existing().client() as client:
        result = client.wait(job_id) if wait else client.result(job_id)
        if not result.finished:
            raise UsageError(f"the job is {result.status}; use --wait to wait for its end")
        detail = client.job(job_id)
        if as_json:
            output.as_json(dict(result.raw))
        else:
            output.raw("stdout", result.stdout_bytes)
            output.raw("stderr", result.stderr_bytes)
        if folder is not None:
            keeping.keep(client, detail, folder, result.artifacts)
    rules = [violation.rule for violation in result.violations]
    for words in ending.remarks(detail, rules, truncated=result.truncated):
        output.say(words)
    return of_job(detail.status, detail.exit_code, detail.killed_by)
