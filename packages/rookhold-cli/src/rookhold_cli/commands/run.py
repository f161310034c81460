"""`rookhold run`: a job from a file, stdin or the command line, with live output and evidence."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rookhold_cli import (
    ending,
    evidence,
    gateway,
    granted,
    judging,
    keeping,
    output,
    verifying,
)
from rookhold_cli.commands import _job_options as options
from rookhold_cli.errors import FilesError, TerminatedError, UsageError
from rookhold_cli.exits import Exit, of_job
from rookhold_cli.following import Ended, follow
from rookhold_cli.interrupts import termination_is_an_exception, undisturbed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rookhold import JobDetail, Rookhold

_EVIDENCE: Final = Path("rookhold-evidence")


@click.command("run", short_help="Run a job and pass its output and exit code on.")
@click.argument("language", metavar="LANGUAGE")
@click.argument("source", metavar="[FILE|-]", required=False)
@click.option("-c", "code", metavar="CODE", help="The program itself, instead of a file.")
@options.job_options
@click.option(
    "--evidence",
    "folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where to keep the evidence. [default: ./rookhold-evidence/<job id>/]",
)
@click.option("--no-evidence", is_flag=True, help="Keep none.")
@click.option(
    "--public-key",
    type=click.Path(path_type=Path),
    metavar="PEM",
    help="The gateway's signing key as you got it from its operator; the evidence must match it.",
)
@click.option("--detach", is_flag=True, help="Print the job's id and do not wait for its end.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document at the end.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing about the job on stderr.")
def command(
    language: str,
    source: str | None,
    code: str | None,
    folder: Path | None,
    no_evidence: bool,
    public_key: Path | None,
    detach: bool,
    as_json: bool,
    quiet: bool,
    **flags: Any,
) -> int:
    """Run a job in LANGUAGE (python, node or bash) and end with its exit code.

    \b
    rookhold run python script.py
    rookhold run bash -c 'echo hello'
    echo 'print(6*7)' | rookhold run python -

    If it does not end by itself: 124 time limit, 137 memory, 125 any other limit or an error;
    64 wrong usage, 69 no gateway, 77 refused, 65 evidence that does not hold.
    """  # noqa: D301 - click wants the control character, for lines that are not to be wrapped
    job = options.read_job(language, source, code, flags)
    target = gateway.configured()
    if detach and target is None:
        raise UsageError("--detach needs a gateway that stays: set ROOKHOLD_BASE_URL")
    if no_evidence and (folder or public_key):
        raise UsageError("--no-evidence contradicts --evidence and --public-key")
    if target is None:
        from rookhold_cli.temporary import require_server  # not to be had on every platform

        require_server()
        judging.judge(job.spec)
    trusted = None
    if public_key is not None:
        verifying.load_keys([public_key])  # refuses what is no key, and a file others may change
        trusted = verifying.read_file(public_key)
    if not (detach or no_evidence):
        if folder is not None:
            evidence.make_folder(folder)
        else:
            evidence.check_place(_EVIDENCE)
    with termination_is_an_exception(), _gateway(target, quiet) as (client, known_key):
        submitted = client.submit(**job.spec)
        if detach:
            output.as_json({"job_id": submitted.job_id}) if as_json else output.line(
                submitted.job_id
            )
            return Exit.OK
        output.progress(f"job {submitted.job_id}")
        ended = _follow_or_cancel(client, submitted.job_id, as_json=as_json)
        detail = client.job(submitted.job_id)
        job.save_outputs(ended.artifacts)
        kept = None
        if not no_evidence:
            kept = keeping.keep(
                client,
                detail,
                folder or _EVIDENCE / submitted.job_id,
                ended.artifacts,
                public_key_pem=trusted or known_key,
                quiet=quiet,
            )
        status = of_job(detail.status, detail.exit_code, detail.killed_by)
        if as_json:
            output.as_json(_document(client, detail, kept, status))
        if not quiet:
            _say_how_it_ended(detail, ended)
            for words in granted.differences(job.spec["limits"], detail.receipt or {}):
                output.say(words)
        return status


@contextlib.contextmanager
def _gateway(target: gateway.Target | None, quiet: bool) -> Iterator[tuple[Rookhold, bytes | None]]:
    """Yield a client, and the signing key where we know it without asking."""
    if target is not None:
        with target.client() as client:
            yield client, None
        return
    from rookhold_cli.temporary import temporary_gateway

    if not quiet:
        output.say("no gateway is configured; starting a temporary one on this computer")
        if gateway.development_runs():
            output.say(
                f"a development gateway runs here; to use it: {gateway.DEVELOPMENT.settings}"
            )
    with temporary_gateway() as ours, ours.target.client() as client:
        backend = client.capabilities().execution.backend
        if backend == "off":  # said even with --quiet: it is about what the job can do to you
            output.say("WARNING: there is NO SANDBOX here; the job runs as an ordinary process")
        else:
            output.progress(f"sandbox {backend}")
        yield client, ours.public_key_pem


def _follow_or_cancel(client: Rookhold, job_id: str, *, as_json: bool) -> Ended:
    try:
        return follow(client, job_id, _nowhere) if as_json else follow(client, job_id)
    except (KeyboardInterrupt, TerminatedError, FilesError) as exc:
        with undisturbed():
            why = exc if isinstance(exc, FilesError) else "interrupted"
            output.say(f"{why}; cancelling job {job_id}")
            with contextlib.suppress(Exception):
                client.cancel(job_id)
        raise


def _nowhere(_stream: str, _data: bytes) -> None:
    """With --json the output is part of the document."""


def _say_how_it_ended(detail: JobDetail, ended: Ended) -> None:
    for words in ending.remarks(detail, ended.rules, truncated=ended.truncated):
        output.say(words)
    for violation in ended.violations:
        for lost in violation.get("detail", {}).get("outputs", ()):
            output.say(f"not brought back: {lost.get('path')} ({lost.get('reason')})")


def _document(
    client: Rookhold, detail: JobDetail, kept: keeping.Kept | None, status: int
) -> dict[str, Any]:
    result = dict(client.result(detail.job_id).raw)
    return result | {
        "exit_status": int(status),
        "killed_by": detail.killed_by,
        "receipt": detail.receipt,
        "evidence": None
        if kept is None
        else {"folder": str(kept.folder), "signed": kept.signed, "verified": kept.verified},
    }
