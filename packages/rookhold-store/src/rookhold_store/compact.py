"""Making the file as small as its content: nothing for a server that is running."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import apsw
from msgspec import Struct

from rookhold_store import connection, files, log_origin, schema
from rookhold_store.errors import StorageUnavailableError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable


class Compacted(Struct, frozen=True, kw_only=True):
    """The size of database and log together, before and after."""

    bytes_before: int
    bytes_after: int


def compact(
    database: str | os.PathLike[str], *, tell: Callable[[str], object] = lambda _: None
) -> Compacted:
    """Write the database anew without its free pages, and let it give free ones back from now on.

    The caller holds the instance lock. Needs about twice the file's size of room: the log and a
    temporary file each hold all of it once. Raises StorageUnavailableError while others use it.
    """
    if not Path(database).exists():
        raise StorageUnavailableError("there is no database file")
    path = files.secure_database(database)
    before = _size(path)
    try:
        db = connection.open_existing(path)
        try:
            connection.look_at_log(db)
            log_origin.refuse_foreign(db)
            schema.check(db)
            connection.prepare_writer(db)
            connection.trust_log(db)
            _rewrite(db, tell)
        finally:
            db.close()
    except apsw.BusyError as exc:
        raise StorageUnavailableError("others read or write the database now") from exc
    except connection.ENGINE_ERRORS as exc:
        raise connection.as_ours(exc) from exc
    return Compacted(bytes_before=before, bytes_after=_size(path))


def _rewrite(db: apsw.Connection, tell: Callable[[str], object]) -> None:
    tell("moving the log into the file")
    _empty_log(db)
    tell("writing the file anew")
    db.execute("PRAGMA temp_store = FILE")  # in memory it would be as large as the database
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    db.execute("VACUUM")
    tell("moving the log into the file")
    _empty_log(db)
    db.execute("PRAGMA optimize")


def _empty_log(db: apsw.Connection) -> None:
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _size(path: Path) -> int:
    total = 0
    for suffix in ("", "-wal"):
        name = Path(f"{path}{suffix}")
        total += name.stat().st_size if name.exists() else 0
    return total
