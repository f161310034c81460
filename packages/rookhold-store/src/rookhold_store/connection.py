"""Connections to the database file: how they are opened, and how SQLite's errors leave as ours."""

from __future__ import annotations

import errno
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import apsw

from rookhold_store import left_log
from rookhold_store.errors import (
    InvalidOperationError,
    RecordRefusedError,
    StorageFullError,
    StorageUnavailableError,
    StoreError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

BUSY_TIMEOUT_MS: Final = 5000
_BUSY_PAUSE_SECONDS: Final = 0.005

# How a statement fails: by SQLite, or already at a value that it cannot take or give back.
ENGINE_ERRORS: Final = (apsw.Error, UnicodeError, OverflowError)

CHECKPOINT_PAGES: Final = 1000  # a log of this length runs into the file, beside the writer
# A log that a checkpoint emptied is cut back to this on its next reset; it may grow beyond it only
# while a reader holds on, and readers here are short.
WAL_BYTES_KEPT: Final = 16 * 1024 * 1024

_INCREMENTAL: Final = 2
# What is set, how, and what SQLite then says of it.
_Settings = tuple[tuple[str, str | int, int], ...]
_WRITER_SETTINGS: Final[_Settings] = (
    ("synchronous", "FULL", 2),
    ("foreign_keys", "ON", 1),
    ("secure_delete", "FAST", 2),
    ("recursive_triggers", "ON", 1),
    ("trusted_schema", "OFF", 0),
    ("cell_size_check", "ON", 1),
    ("temp_store", "MEMORY", 2),
    ("journal_size_limit", WAL_BYTES_KEPT, WAL_BYTES_KEPT),
)
_READER_SETTINGS: Final[_Settings] = (("query_only", "ON", 1), ("trusted_schema", "OFF", 0))


def open_existing(path: Path) -> apsw.Connection:
    """Open a file that exists for writing, changing nothing about it yet.

    Until `trust_log` nothing moves from the log to the file: the log may not be ours, and a file
    that is refused is not changed.
    """
    db = apsw.Connection(
        str(path),
        flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW,
        statementcachesize=200,
    )
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    if db.readonly("main"):  # SQLite opens it all the same
        db.close()
        raise StorageUnavailableError("the database file can only be read, not written")
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.wal_autocheckpoint(0)
    return db


def look_at_log(db: apsw.Connection) -> None:
    """Have SQLite open the log, if there is one, so that whose it is can be told by its name."""
    with suppress(apsw.Error):  # the judgement of the schema says it better
        db.pragma("user_version")


def trust_log(db: apsw.Connection) -> None:
    """Let the log of a database that was judged sound run into its file from now on."""
    db.wal_autocheckpoint(CHECKPOINT_PAGES)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)


def leave(db: apsw.Connection) -> None:
    """Close a file that is refused: a log with something in it stays, an empty one is tidied away.

    Merely to read a file that uses a log makes SQLite put one beside it.
    """
    with suppress(OSError):
        if Path(db.filename_wal).stat().st_size == 0:
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    db.close()


def prepare_new(db: apsw.Connection) -> None:
    """Set what only an empty database can still choose."""
    db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    if db.pragma("auto_vacuum") != _INCREMENTAL:  # the file has a header already, of other hands
        db.execute("VACUUM")


@contextmanager
def immediate(db: apsw.Connection) -> Iterator[None]:
    """Run a transaction that waits for another writer at its begin, and never fails for it later.

    A deferred one that reads and then writes is refused at once if somebody wrote between the two.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def prepare_writer(db: apsw.Connection) -> None:
    """Turn a checked database into the writer's: write-ahead log, every commit on the disk."""
    if _write_ahead(db) != "wal":
        raise StorageUnavailableError("the file system does not support a write-ahead log")
    _apply(db, _WRITER_SETTINGS)
    db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    _plan_once(db)
    left_log.make_durable(db)


def _write_ahead(db: apsw.Connection) -> object:
    """Ask for the write-ahead log, as patiently as for a lock, and return the mode in force.

    SQLite asks no busy handler here: two openers that switch at once get an error at once.
    """
    until = monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            return db.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if monotonic() >= until:
                raise
            sleep(_BUSY_PAUSE_SECONDS)


def _apply(db: apsw.Connection, settings: _Settings) -> None:
    """Set each and ask for it again: SQLite passes over a pragma that it does not understand."""
    for name, value, in_force in settings:
        db.pragma(name, value)
        if db.pragma(name) != in_force:
            raise StorageUnavailableError("SQLite does not take a setting", setting=name)


def _plan_once(db: apsw.Connection) -> None:
    """Keep the plan of a cached statement, whatever is bound to it.

    Without this, SQLite parses many statements again each time they are bound to another value.
    """
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


def open_reader(path: Path) -> apsw.Connection:
    """Open one more connection, which can only read."""
    db = apsw.Connection(
        str(path),
        flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_NOFOLLOW,
        statementcachesize=64,
    )
    db.set_busy_timeout(BUSY_TIMEOUT_MS)
    _apply(db, _READER_SETTINGS)
    _plan_once(db)
    return db


def as_ours(exc: apsw.Error | UnicodeError | OverflowError) -> StoreError:
    """Return the error of this store for an engine's; SQLite's own text holds no row content."""
    if isinstance(exc, UnicodeEncodeError):
        return InvalidOperationError("a text holds a lone surrogate")
    if isinstance(exc, UnicodeError):
        return StorageUnavailableError("a stored text is not UTF-8")
    if isinstance(exc, OverflowError):
        return InvalidOperationError("a number is outside 64 bits")
    if isinstance(exc, apsw.ConstraintError):
        return RecordRefusedError(str(exc))
    if isinstance(exc, apsw.FullError) or _no_room_for_index(exc):
        return StorageFullError("the file system is full")
    if isinstance(exc, apsw.CorruptError):
        return StorageUnavailableError("the database file is damaged; restore a backup of it")
    return StorageUnavailableError(f"the database answered {type(exc).__name__}")


def _no_room_for_index(exc: Exception) -> bool:
    """Whether the log's index could not grow, which lies in a file of its own beside the log."""
    code: object = getattr(exc, "extendedresult", None)
    return isinstance(exc, apsw.IOError) and code == apsw.SQLITE_IOERR_SHMSIZE


def seen(db: apsw.Connection, exc: BaseException) -> BaseException:
    """Return what a connection met as what it was: SQLite knows no quota of a file system.

    To be asked right after the failure, while the connection still has the system's own word.
    """
    over_quota = (
        isinstance(exc, apsw.IOError)
        and getattr(exc, "extendedresult", None) == apsw.SQLITE_IOERR_WRITE
        and db.system_errno == errno.EDQUOT
    )
    if not over_quota:
        return exc
    full = apsw.FullError("the file system's quota is used up")
    full.__cause__ = exc
    return full


def translated(exc: BaseException) -> BaseException:
    """Return an engine's error as ours, with its cause, and any other as it is."""
    if not isinstance(exc, ENGINE_ERRORS):
        return exc
    ours = as_ours(exc)
    ours.__cause__ = exc
    return ours
