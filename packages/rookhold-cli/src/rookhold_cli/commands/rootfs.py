"""`rookhold rootfs`: the private root of sandboxes, built, described and checked."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from rookhold_cli import output
from rookhold_cli.errors import CommandError, FilesError, UsageError
from rookhold_cli.exits import Exit
from rookhold_cli.extras import load
from rookhold_cli.interrupts import termination_is_an_exception

if TYPE_CHECKING:
    from collections.abc import Iterator

_WHAT: Final = "the root of sandboxes"
_SLOT_UID_BASE: Final = 210_000  # as the server's own default; a test holds the two together
_UID_MAX: Final = 4_294_967_294
_WORKERS_MAX: Final = 256
_TAIL: Final = 20
_EXITS: Final = {
    "rootfs_target_exists": Exit.FILES,
    "rootfs_target_unwritable": Exit.FILES,
    "rootfs_missing": Exit.FILES,
    "rootfs_builder_missing": Exit.UNREACHABLE,
    "rootfs_no_mirror": Exit.UNREACHABLE,
    "rootfs_build_failed": Exit.UNREACHABLE,
    "rootfs_build_timeout": Exit.UNREACHABLE,
}  # every other refusal: Exit.PROBLEM


class _RootfsRefusedError(CommandError):
    """It cannot be used, or not be built."""

    def __init__(self, message: str, status: Exit) -> None:
        super().__init__(message)
        self.exit = status  # type: ignore[misc] # one class, as many ends as there are codes


@click.group("rootfs")
def command() -> None:
    """Build, describe and check the system that jobs see: the private root of sandboxes."""


@command.command("build", short_help="Build one from Debian packages.")
@click.argument("directory", metavar="DIR")
@click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    metavar="URL|LINE",
    help="Where packages come from: an address, or a line as in sources.list. Repeatable."
    " Without it, the mirrors of this computer's own apt.",
)
@click.option(
    "--newer", is_flag=True, help="Take the versions that the mirror has, and say how they differ."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def build(directory: str, mirrors: tuple[str, ...], newer: bool, as_json: bool) -> None:
    """Build one at DIR from Debian packages, in their pinned versions; then print its digest.

    DIR must not exist, or be empty. Needs mmdebstrap and a minute or two; best done as root.
    """
    builder = load("rookhold_exec.rootfs.build", what=_WHAT, extra="server")
    verifier = load("rookhold_exec.rootfs.verify", what=_WHAT, extra="server")
    said: list[str] = []

    def tell(line: str) -> None:
        said.append(line)
        del said[:-_TAIL]
        if line.startswith("N: "):
            output.say(line.removeprefix("N: "))
        else:
            output.progress(line)

    with _refusals(said), termination_is_an_exception():
        found = builder.build(directory, mirrors=mirrors, newer=newer, tell=tell)
    _print(found, as_json=as_json)
    try:
        verifier.check_place(found.path)
    except _error_type() as exc:
        output.say(f"it is built, but cannot be used where it is: {exc} ({exc.code})")


@command.command("manifest", short_help="Print the digest that pins one.")
@click.argument("directory", metavar="DIR")
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Also write the whole manifest there, for a review and to compare with later.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def manifest(directory: str, out: Path | None, as_json: bool) -> None:
    """Print the digest of DIR's manifest, which is what ROOKHOLD_GVISOR_ROOTFS_SHA256 pins.

    The manifest has a line for every file, directory and link: mode, owner, size, SHA-256.
    """
    manifests = load("rookhold_exec.rootfs.manifest", what=_WHAT, extra="server")
    with _refusals():
        if out is None:
            digest = manifests.digest_of(directory)
        else:
            content = manifests.manifest(directory)
            digest = manifests.digest(content)
            try:
                out.write_bytes(content)
            except OSError as exc:
                raise FilesError(f"cannot write {out} ({exc.strerror})") from exc
    if as_json:
        output.as_json({"manifest_sha256": digest, "manifest": None if out is None else str(out)})
    else:
        output.line(digest)


@command.command("verify", short_help="Check one as a gateway does before it starts.")
@click.argument("directory", metavar="DIR")
@click.option(
    "--sha256", metavar="DIGEST", help="The digest that its manifest must have, as reviewed."
)
@click.option(
    "--uid-base",
    type=click.IntRange(1, _UID_MAX),
    default=_SLOT_UID_BASE,
    show_default=True,
    help="The first account of jobs, ROOKHOLD_SANDBOX_UID_BASE.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, _WORKERS_MAX),
    default=_WORKERS_MAX,
    show_default=True,
    help="How many accounts jobs have.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def verify(directory: str, sha256: str | None, uid_base: int, workers: int, as_json: bool) -> None:
    """Check DIR as a gateway does before it starts: its place, its owners, its contents.

    Ends with 0 only if a gateway would take it.
    """
    verifier = load("rookhold_exec.rootfs.verify", what=_WHAT, extra="server")
    pinned = None if sha256 is None else _digest(sha256)
    with _refusals():
        found = verifier.verify(directory, pinned=pinned, uids=range(uid_base, uid_base + workers))
    _print(found, as_json=as_json)


def _digest(text: str) -> str:
    lowered = text.lower().removeprefix("sha256:")
    if len(lowered) != 64 or not set(lowered) <= set("0123456789abcdef"):
        raise UsageError("--sha256 takes the 64 hexadecimal digits of a digest")
    return lowered


def _print(found: Any, *, as_json: bool) -> None:
    if as_json:
        output.as_json(
            {
                "manifest_sha256": found.digest,
                "runtime_packs": list(found.packs),
                "entries": found.entries,
                "bytes": found.bytes,
            }
        )
        return
    output.line(f"manifest sha256  {found.digest}")
    output.line(f"runtime packs    {', '.join(found.packs) or 'none'}")
    output.line(f"holds            {found.entries} entries, {found.bytes // 1_000_000} MB")


def _error_type() -> Any:
    return load("rookhold_exec.rootfs.errors", what=_WHAT, extra="server").RootfsError


@contextmanager
def _refusals(said: list[str] | None = None) -> Iterator[None]:
    """Turn a refusal into one line with its code, after what the builder said last."""
    try:
        yield
    except _error_type() as exc:
        if exc.code == "rootfs_build_failed":
            for line in said or ():
                output.say(line)
        raise _RootfsRefusedError(
            f"{exc} ({exc.code})", _EXITS.get(exc.code, Exit.PROBLEM)
        ) from exc
