"""`rookhold verify`: checks evidence offline."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from rookhold_cli import output, verifying
from rookhold_cli.errors import UsageError


@click.command("verify")
@click.argument("paths", metavar="DIR | ENVELOPE RESULT", nargs=-1, type=click.Path(path_type=Path))
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
) -> None:
    """Check evidence: a folder that run wrote, or an envelope and its result artifact.

    Needs no gateway and no network. Exit code 0 means authentic, not that the job went well.
    """
    keys = verifying.load_keys(key_files)
    if len(paths) == 1 and paths[0].is_dir():
        found = verifying.verify_folder(paths[0], keys=keys, tenant=tenant)
    elif len(paths) == 2 and keys:
        envelope, artifact = (verifying.read_file(path) for path in paths)
        found = verifying.verify(envelope, artifact, keys, tenant=tenant)
    elif len(paths) == 2:
        raise UsageError("an envelope and a result need --public-key: the key to check them with")
    else:
        raise UsageError("give one folder, or an envelope and its result artifact")
    if as_json:
        output.as_json({"verified": True, "key_pinned": bool(keys), **asdict(found)})
    else:
        output.line(
            f"verified: job {output.plain(found.execution_id)} of tenant "
            f"{output.plain(found.tenant)}, outcome {found.outcome}"
        )
        output.line(f"signed by {', '.join(found.key_ids)}")
        if found.compared:
            output.line(f"also compared: {', '.join(map(output.plain, found.compared))}")
        if not found.event_chain_complete:
            output.line("the job's history is not complete")
    if not keys:
        output.say(
            "checked with the key in the folder, which proves nothing about who signed; "
            "use --public-key with the one you got from the operator"
        )
    if tenant is None:
        output.say("the tenant was read, not checked; use --tenant")
