"""`rookhold show`: everything about one job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rookhold_cli import ending, gateway, output, plain_words, wholeness
from rookhold_cli.commands.jobs import when

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rookhold import JobDetail


@click.command("show")
@click.argument("job_id", metavar="JOB")
@click.option("--json", "as_json", is_flag=True, help="Print the gateway's own document.")
def command(job_id: str, as_json: bool) -> None:
    """Show everything about JOB: how it ended, in which sandbox, under which limits."""
    with gateway.existing().client() as client:
        detail = client.job(job_id)
    if as_json:
        output.as_json(dict(detail.raw))
        return
    width = 14
    for name, text in _facts(detail):
        output.line(f"{name:<{width}}{output.plain(text)}")


def _facts(detail: JobDetail) -> Iterator[tuple[str, str]]:
    receipt = detail.receipt or {}
    yield "job", detail.job_id
    yield "tenant", detail.tenant
    yield "language", detail.language
    yield "status", detail.status
    yield "accepted", when(detail.created_at_ms)
    if detail.queue_position is not None:
        yield "in the queue", str(detail.queue_position)
    if detail.started_at_ms is not None:
        yield "started", when(detail.started_at_ms)
    if detail.finished:
        yield "finished", when(detail.finished_at_ms or 0)
        yield "ended", ending.of(detail)
    if (cut := wholeness.output(receipt)) is not None:
        yield "output", cut
    policy = detail.execution_policy
    if policy.get("bootstrap_ready"):
        yield "sandbox", f"{policy.get('sandbox')} (class {policy.get('isolation_class')})"
        yield "network", str(policy.get("networking"))
        yield "controls", ", ".join(policy.get("controls") or ()) or "none"
        yield "limits", _limits(receipt)
    elif wholeness.lost_its_gateway(receipt):
        yield "sandbox", "not recorded: the gateway ended while the job ran"
    elif detail.finished:
        yield "sandbox", "the job never became ready in one"
    state = detail.attestation.state
    if state == "unavailable" and not detail.finished:
        state = "not yet"
    incomplete = wholeness.evidence(receipt)
    yield "evidence", state if incomplete is None else f"{state}; {incomplete}"
    if detail.receipt_sha256:
        yield "receipt", f"sha256:{detail.receipt_sha256}"


def _limits(receipt: Any) -> str:
    """Name the limits that were in force, and then those that were not."""
    effective = receipt.get("effective_limits") or {}
    names = ("wall_seconds", "cpu_seconds", "mem_mb", "max_pids", "max_file_mb")
    held = [f"{name} {effective[name]}" for name in names if effective.get(name) is not None]
    loose = [name for name in names if effective.get(name) is None and name != "cpu_seconds"]
    said = ", ".join(held) or "none"
    if loose:
        said += f"; not enforced here: {', '.join(loose)}"
    if effective.get("cpu_seconds") is None:
        said += f"; {plain_words.MEASURED}: cpu_seconds"
    return said
