"""Connections to the database file: how they are opened, and how SQLite's errors leave as ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import apsw

from rookhold_store.errors import (
    RecordRefusedError,
    StorageFullError,
    StorageUnavailableError,
    StoreError,
)

if TYPE_CHECKING:
    from pathlib import Path

BUSY_TIMEOUT_MS: Final = 5000

# A log that a checkpoint emptied is cut back to this on its next reset; it may grow beyond it only
# while a reader holds on, and readers here are short.
WAL_BYTES_KEPT: Final = 64 * 1024 * 1024

_WRITER_PRAGMAS: Final = f"""
PRAGMA synchronous = FULL;
PRAGMA foreign_keys = ON;
PRAGMA secure_delete = FAST;
PRAGMA recursive_triggers = ON;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;
PRAGMA temp_store = MEMORY;
PRAGMA journal_size_limit = {WAL_BYTES_KEPT};
"""
_READER_PRAGMAS: Final = """
PRAGMA query_only = ON;
PRAGMA trusted_schema = OFF;
"""


def open_existing(path: Path) -> apsw.Connection:
    """Open a file that exists for writing, changing nothing about it yet."""
    db = apsw.Connection(
        str(path),
        flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW,
        statementcachesize=200,
    )
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    return db


def prepare_new(db: apsw.Connection) -> None:
    """Set what only an empty database can still choose."""
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")


def prepare_writer(db: apsw.Connection) -> None:
    """Turn a checked database into the writer's: write-ahead log, every commit on the disk."""
    if db.pragma("journal_mode", "wal") != "wal":
        raise StorageUnavailableError("the file system does not support a write-ahead log")
    db.execute(_WRITER_PRAGMAS)
    db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)


def open_reader(path: Path) -> apsw.Connection:
    """Open one more connection, which can only read."""
    db = apsw.Connection(
        str(path),
        flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOFOLLOW,
        statementcachesize=64,
    )
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    db.execute(_READER_PRAGMAS)
    return db


def as_ours(exc: apsw.Error) -> StoreError:
    """Return the error of this store for one of SQLite's; SQLite's text holds no row content."""
    if isinstance(exc, apsw.ConstraintError):
        return RecordRefusedError(str(exc))
    if isinstance(exc, apsw.FullError):
        return StorageFullError("the file system is full")
    return StorageUnavailableError(f"the database answered {type(exc).__name__}")
