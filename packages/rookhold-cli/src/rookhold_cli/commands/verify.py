"""`rookhold verify`: checks evidence offline."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rookhold_cli import output, verifying
from rookhold_cli.errors import CommandError, FilesError, UsageError
from rookhold_cli.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command("verify")
@click.argument(
    "paths", metavar="DIR... | ENVELOPE RESULT", nargs=-1, type=click.Path(path_type=Path)
)
@click.option(
    "--public-key",
    "key_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PEM",
    help="A signing key you trust. Repeatable. Without it, the key in DIR is used, and said so.",
)
@click.option("--tenant", help="The tenant the evidence must be of.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    paths: tuple[Path, ...], key_files: tuple[Path, ...], tenant: str | None, as_json: bool
) -> int:
    """Check evidence: folders that run wrote, or an envelope and its result artifact.

    Needs no gateway and no network. Exit code 0 means authentic, not that the job went well. Of
    several folders each is checked; the first that does not hold decides the exit code.
    """
    keys = verifying.load_keys(key_files)
    if len(paths) == 2 and not any(path.is_dir() for path in paths):
        if not keys:
            raise UsageError("an envelope and a result need --public-key: the key to check with")
        envelope, artifact = (verifying.read_file(path) for path in paths)
        _tell(verifying.verify(envelope, artifact, keys, tenant=tenant), keys, as_json=as_json)
        ended = Exit.OK
    elif missing := [path for path in paths if not path.exists()]:
        raise FilesError(f"{missing[0]} is not there")
    elif not paths or not all(path.is_dir() for path in paths):
        raise UsageError("give folders of evidence, or an envelope and its result artifact")
    elif len(paths) == 1:
        found = verifying.verify_folder(paths[0], keys=keys, tenant=tenant)
        _tell(found, keys, as_json=as_json)
        ended = Exit.OK
    else:
        ended = _each(paths, keys, tenant, as_json=as_json)
    if not keys:
        output.say(
            "checked with the key in the folder, which proves nothing about who signed; "
            "use --public-key with the one you got from the operator"
        )
    if tenant is None:
        output.say("the tenant was read, not checked; use --tenant")
    return ended


def _each(
    folders: Sequence[Path], keys: Sequence[Any], tenant: str | None, *, as_json: bool
) -> Exit:
    """Check every folder, also after one that does not hold."""
    ended = Exit.OK
    documents: list[dict[str, Any]] = []
    for folder in folders:
        try:
            found = verifying.verify_folder(folder, keys=keys, tenant=tenant)
        except CommandError as exc:
            output.say(f"{folder}: {exc}")
            documents.append({"folder": str(folder), "verified": False, "reason": str(exc)})
            ended = ended or exc.exit
            continue
        documents.append({"folder": str(folder), **_document(found, keys)})
        if not as_json:
            _tell(found, keys, as_json=False)
    if as_json:
        output.as_json({"verified": ended == Exit.OK, "folders": documents})
    return ended


def _document(found: verifying.Verdict, keys: Sequence[Any]) -> dict[str, Any]:
    return {"verified": True, "key_pinned": bool(keys), **asdict(found)}


def _tell(found: verifying.Verdict, keys: Sequence[Any], *, as_json: bool) -> None:
    if as_json:
        output.as_json(_document(found, keys))
        return
    output.line(
        f"verified: job {output.plain(found.execution_id)} of tenant "
        f"{output.plain(found.tenant)}, outcome {found.outcome}"
    )
    output.line(f"signed by {', '.join(found.key_ids)}")
    if found.compared:
        output.line(f"also compared: {', '.join(map(output.plain, found.compared))}")
    if found.absent:
        output.line(f"signed, but not in the folder: {', '.join(map(output.plain, found.absent))}")
    if not found.event_chain_complete:
        output.line("the job's history is not complete")
