"""What the `db` commands share: which file, how refusals end, how progress is shown."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from . import output
from .errors import BadEvidenceError, CommandError, FilesError, UsageError
from .exits import Exit
from .extras import load, require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WHAT: Final = "looking into a database"
EXTRA: Final = "server"
_EXITS: Final = {
    "database_locked": Exit.REFUSED,
    "backup_unsound": Exit.BAD_EVIDENCE,
    "evidence_unreadable": Exit.BAD_EVIDENCE,
}  # every other refusal is about a file of this computer
_EVIDENCE: Final = ("receipt.json", "envelope.json", "result.json")
_EVIDENCE_MAX: Final = 20 * 1024 * 1024


class StoreRefusedError(CommandError):
    """The store refuses, with a code of its own."""

    def __init__(self, message: str, status: Exit) -> None:
        super().__init__(message)
        self.exit = status  # type: ignore[misc] # one class, as many ends as there are codes


def part(module: str) -> Any:
    """Load a part of the store, or name the extra that installs it."""
    return load(module, what=WHAT, extra=EXTRA)


def database(given: Path | None) -> Path:
    """Return the database that is meant: the given one, or that of a server started here."""
    require("rookhold_store", what=WHAT, extra=EXTRA)
    if given is None:
        settings = part("rookhold_server.config.settings")
        errors = part("rookhold_types.errors")
        try:
            given = settings.read_database(os.environ)
        except errors.RookholdError as exc:
            raise UsageError(str(exc)) from exc
    if not given.is_file():
        raise FilesError(f"there is no database {given}")
    return given


def require_owner(path: Path) -> None:
    """Refuse to change a database as another account than the one whose gateway uses it."""
    if path.stat().st_uid != os.geteuid():
        raise FilesError(f"{path} belongs to another account; run this as that one")


def binding() -> Any:
    """Return the test that an attestation binds its job and tenant."""
    return load("rookhold_attestation.binding", what=WHAT, extra=EXTRA).binds


@contextmanager
def refusals() -> Iterator[None]:
    """Turn what the store refuses into one line and an exit status."""
    errors = part("rookhold_store.errors")
    try:
        yield
    except errors.StoreError as exc:
        status = _EXITS.get(exc.code, Exit.FILES)
        raise StoreRefusedError(f"{exc} ({exc.code})", status) from exc


@contextmanager
def bar() -> Iterator[Callable[[Any], None] | None]:
    """Lend what draws progress on a terminal; None where nobody watches."""
    if not output.on_terminal():
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=None)

        def draw(progress: Any) -> None:
            shown.update(
                task, completed=progress.done, total=progress.total, description=progress.doing
            )

        yield draw


def kept(paths: tuple[Path, ...]) -> list[Any]:
    """Read evidence that was kept elsewhere; a folder holds what `rookhold run` writes."""
    verify = part("rookhold_store.verify")
    errors = part("rookhold_store.errors")
    found = []
    for file in (file for path in paths for file in _files(path)):
        try:
            found.append(verify.read_kept(_content(file)))
        except errors.EvidenceUnreadableError as exc:
            raise BadEvidenceError(f"{file}: {exc} ({exc.code})") from exc
    return found


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    folders = (path, *sorted(path.iterdir()))
    found = [folder / name for folder in folders for name in _EVIDENCE if (folder / name).is_file()]
    if not found:
        raise FilesError(f"{path} holds no evidence")
    return found


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_EVIDENCE_MAX + 1)
    except OSError as exc:
        raise FilesError(f"cannot read {path} ({exc.strerror})") from exc
    if len(content) > _EVIDENCE_MAX:
        raise BadEvidenceError(f"{path} is too large to be evidence")
    return content
