"""`rookhold db`: looks after the database file of a gateway."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import click

from rookhold_cli import counted, output, stored
from rookhold_cli.absence import is_absent
from rookhold_cli.counted import many, size
from rookhold_cli.errors import FilesError, UsageError
from rookhold_cli.exits import Exit
from rookhold_cli.interrupts import termination_is_an_exception

_FINDINGS_MAX: Final = 10_000
_DATABASE: Final = click.Path(path_type=Path)
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")

_VERIFY_EPILOG: Final = """
\b
Examples:
  rookhold db verify
  rookhold db verify /var/lib/rookhold/rookhold.db --json
  rookhold db verify --receipt receipt.json --receipt rookhold-evidence
  rookhold db verify --jobs 01890a5d-ac96-774b-bcce-b302099a8057

\b
Exit codes:
  0   nothing was found
  64  called in a way that cannot work
  65  something was found, or the evidence given does not hold in itself
  74  the file cannot be read, is no database of a gateway, or of another version
"""
_BACKUP_EPILOG: Final = """
\b
Examples:
  rookhold db backup /backup/rookhold-monday.db
  rookhold db backup copy.db --database /var/lib/rookhold/rookhold.db

\b
Exit codes: 0 made and verified; 65 the copy does not verify, and was thrown away;
74 it cannot be made there, or FILE exists.
"""
_COMPACT_EPILOG: Final = """
\b
Examples:
  rookhold db compact
  rookhold db compact /var/lib/rookhold/rookhold.db

\b
Exit codes: 0 done; 74 the file cannot be used, or there is no room; 77 a gateway uses it.
"""
_STATS_EPILOG: Final = """
\b
Examples:
  rookhold db stats
  rookhold db stats --json
"""


@click.group("db")
def command() -> None:
    """Verify, back up, compact and count a gateway's database.

    Without a path it is the one that a gateway started here would use: ROOKHOLD_DB, or rookhold.db
    in the state directory.
    """


@command.command("verify", short_help="Recompute all that it claims.", epilog=_VERIFY_EPILOG)
@click.argument("database", metavar="[DB]", required=False, type=_DATABASE)
@click.option(
    "--jobs", "job_ids", multiple=True, metavar="ID", help="Only these jobs. Repeatable, or ID,ID."
)
@click.option(
    "--receipt",
    "receipts",
    multiple=True,
    type=_DATABASE,
    metavar="FILE",
    help="Evidence that was kept elsewhere: a receipt, an envelope, a result, an event hash, or a"
    " folder that run wrote, or one of those. Repeatable.",
)
@_JSON
def verify(
    database: Path | None, job_ids: tuple[str, ...], receipts: tuple[Path, ...], as_json: bool
) -> Exit:
    """Recompute every chain, receipt, account and digest of DB, and name what does not hold.

    A gateway may be running. Nothing is changed, no lock is taken, and a copy in a directory that
    cannot be written to will do.
    """
    asked = [job_id for text in job_ids for job_id in text.split(",") if job_id]
    if job_ids and not asked:
        raise UsageError("--jobs names no job")
    if asked:
        ids = stored.part("rookhold_types.ids")
        for text in asked:
            if not ids.is_job_id(text):
                raise UsageError(f"--jobs: {text} is no job id; `rookhold jobs` lists them")
    path = stored.database(database)
    kept = stored.kept(receipts)
    sources = stored.part("rookhold_store.source")
    parts = stored.part("rookhold_store.verify")
    found: list[Any] = []
    with (
        stored.refusals(),
        termination_is_an_exception(),
        sources.Source(path) as source,
        stored.bar() as draw,
    ):
        run = parts.Verification(
            source, binding=stored.binding(), job_ids=asked or None, kept=kept, progress=draw
        )
        for finding in run.findings():
            found.append(finding)
            if not as_json:
                output.line(output.plain(str(finding)))
            if len(found) == _FINDINGS_MAX:
                run.unchecked.append(f"given up after {_FINDINGS_MAX} findings")
                break
    _tell(path, run, found, whole=not asked, kept=len(kept), as_json=as_json)
    return Exit.BAD_EVIDENCE if found else Exit.OK


def _tell(path: Path, run: Any, found: list[Any], *, whole: bool, kept: int, as_json: bool) -> None:
    unproved = stored.part("rookhold_store.verify.unproved")
    if not whole:
        run.unchecked.append("the rest of the file, its sums and its pages: --jobs was given")
    if as_json:
        output.as_json(
            {
                "database": str(path),
                "sound": not found,
                "jobs": run.jobs,
                "kept_evidence": kept,
                "findings": [_document(item) for item in found],
                "unchecked": run.unchecked,
                "cannot_prove": list(unproved.SENTENCES),
            }
        )
        return
    compared = f", compared with {many(kept, 'document')} kept elsewhere" if kept else ""
    output.line(
        f"{many(run.jobs, 'job')} checked{compared}: "
        + (many(len(found), "finding") if found else "nothing was found")
    )
    for sentence in run.unchecked:
        output.line(f"not checked: {sentence}")
    output.line("a store alone cannot prove:")
    for sentence in unproved.SENTENCES:
        output.line(f"  - {sentence}")
    output.line(unproved.REMEDY)


def _document(finding: Any) -> dict[str, Any]:
    return {name: getattr(finding, name) for name in finding.__struct_fields__}


@command.command("backup", short_help="Copy it while it is used.", epilog=_BACKUP_EPILOG)
@click.argument("file", metavar="FILE", type=_DATABASE)
@click.option("--database", metavar="DB", type=_DATABASE, help="The database to copy.")
@_JSON
def backup(file: Path, database: Path | None, as_json: bool) -> None:
    """Copy the database, as it is at one moment, to the new FILE, and verify the copy.

    A gateway may be running, and goes on writing. FILE gets its name once it is complete, on the
    disk and verified; a file that exists is never overwritten.
    """
    path = stored.database(database)
    if is_absent(file.parent):
        raise FilesError(f"the folder {file.parent} does not exist; make it first")
    backups = stored.part("rookhold_store.backup")
    errors = stored.part("rookhold_store.errors")
    with stored.refusals(), termination_is_an_exception(), stored.bar() as draw:
        try:
            made = backups.backup(path, file, binding=stored.binding(), progress=draw)
        except errors.BackupUnsoundError as exc:
            for finding in exc.findings[:_FINDINGS_MAX]:
                output.line(output.plain(str(finding)))
            raise
    if as_json:
        output.as_json({**_document(made), "verified": made.jobs is not None})
    elif made.jobs is None:
        output.line(f"{file}: {size(made.bytes)}, version {made.version}; its pages were checked")
    else:
        output.line(f"{file}: {size(made.bytes)}, {many(made.jobs, 'job')}, verified")


@command.command("compact", short_help="Make its file small.", epilog=_COMPACT_EPILOG)
@click.argument("database", metavar="[DB]", required=False, type=_DATABASE)
@_JSON
def compact(database: Path | None, as_json: bool) -> None:
    """Write DB anew without its free pages. No gateway may use it meanwhile.

    Needs about twice the file's size of room beside it. A file from an older version gives free
    pages back by itself from then on.
    """
    path = stored.database(database)
    stored.require_owner(path)  # before the lock: made by root, it would lock the gateway out
    # Before SQLite is loaded: its temporary file is as large as the database, /tmp perhaps small.
    os.environ.setdefault("SQLITE_TMPDIR", str(path.absolute().parent))
    compacting = stored.part("rookhold_store.compact")
    locks = stored.part("rookhold_store.lock")
    with stored.refusals(), termination_is_an_exception(), locks.InstanceLock(path):
        done = compacting.compact(path, tell=output.progress)
    if as_json:
        output.as_json(_document(done))
    else:
        output.line(f"{size(done.bytes_before)} before, {size(done.bytes_after)} now")


@command.command("stats", short_help="Count what it holds.", epilog=_STATS_EPILOG)
@click.argument("database", metavar="[DB]", required=False, type=_DATABASE)
@_JSON
def stats(database: Path | None, as_json: bool) -> None:
    """Count jobs, tenants, bytes and pages of DB. A gateway may be running."""
    path = stored.database(database)
    counting = stored.part("rookhold_store.stats")
    quotas = counted.quotas()
    with stored.refusals():
        found = counting.stats(path)
    if as_json:
        document = _document(found) | {
            "quota_bytes": quotas[0],
            "tenant_quota_bytes": quotas[1],
        }
        document["most_charged"] = [_document(item) for item in found.most_charged]
        output.as_json(document)
        return
    for line in counted.lines(found, quotas):
        output.line(line)
