"""SQLite's own check of its pages, indexes and constraints."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import apsw

from rookhold_store.connection import ENGINE_ERRORS
from rookhold_store.verify.finding import FILE, Finding
from rookhold_store.verify.walk import unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FINDINGS_MAX: Final = 100
_CODES: Final = re.compile(r"error code=(\d+)")
_PRIMARY: Final = 0xFF  # of an extended result code
_STEPS: Final = 20_000  # of SQLite's machine, between two looks at the log


def findings(db: apsw.Connection, stop: Callable[[], bool] | None = None) -> Iterator[Finding]:
    """Yield SQLite's complaints; raises apsw.InterruptError once `stop` says so."""
    if stop is not None:
        db.set_progress_handler(stop, _STEPS)
    try:
        for (said,) in db.execute(f"PRAGMA integrity_check({FINDINGS_MAX})"):
            if said != "ok":
                yield Finding(place=FILE, problem=_one_line(said), disk=_of_the_disk(said))
    finally:
        if stop is not None:
            db.set_progress_handler(None)


def complete(db: apsw.Connection) -> Iterator[Finding]:
    """Do the same in the caller's transaction; an error of the engine is a finding."""
    try:
        yield from findings(db)
    except ENGINE_ERRORS as exc:
        yield unreadable(exc)


def _of_the_disk(said: object) -> bool:
    """Whether SQLite counts an error of the disk among its complaints about pages."""
    codes = _CODES.findall(str(said))
    return any(int(code) & _PRIMARY == apsw.SQLITE_IOERR for code in codes)


def _one_line(said: object) -> str:
    text = said if isinstance(said, str) else repr(said)
    return "; ".join(
        line for line in text.removeprefix("*** in database main ***").split("\n") if line
    )
