"""SQLite's own check of its pages, indexes and constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rookhold_store.connection import ENGINE_ERRORS
from rookhold_store.verify.finding import FILE, Finding
from rookhold_store.verify.walk import unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import apsw

FINDINGS_MAX: Final = 100
_STEPS: Final = 20_000  # of SQLite's machine, between two looks at the log


def findings(db: apsw.Connection, stop: Callable[[], bool] | None = None) -> Iterator[Finding]:
    """Yield SQLite's complaints; raises apsw.InterruptError once `stop` says so."""
    if stop is not None:
        db.set_progress_handler(stop, _STEPS)
    try:
        for (said,) in db.execute(f"PRAGMA integrity_check({FINDINGS_MAX})"):
            if said != "ok":
                yield Finding(place=FILE, problem=_one_line(said))
    finally:
        if stop is not None:
            db.set_progress_handler(None)


def complete(db: apsw.Connection) -> Iterator[Finding]:
    """Do the same in the caller's transaction; an error of the engine is a finding."""
    try:
        yield from findings(db)
    except ENGINE_ERRORS as exc:
        yield unreadable(exc)


def _one_line(said: object) -> str:
    text = said if isinstance(said, str) else repr(said)
    return "; ".join(
        line for line in text.removeprefix("*** in database main ***").split("\n") if line
    )
