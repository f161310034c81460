"""A database file to be looked at: changed in nothing, whoever else writes to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw

from rookhold_store import schema
from rookhold_store.connection import BUSY_TIMEOUT_MS, ENGINE_ERRORS, as_ours
from rookhold_store.errors import (
    ForeignSchemaError,
    OpenRefusedError,
    SchemaVersionError,
    StorageUnavailableError,
)
from rookhold_store.moments import SLICE_SECONDS, Short

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self, TypeVar

    T = TypeVar("T")

ROW_BYTES_MAX: Final = 256 * 1024 * 1024  # far above any row of ours; damage may claim more
BUSY_MAX: Final = 5  # times of the busy timeout
# What SQLite answers for reasons that lie outside the pages of the file.
ELSEWHERE: Final = (
    apsw.AuthError,
    apsw.BusyError,
    apsw.CantOpenError,
    apsw.LockedError,
    apsw.PermissionsError,
    apsw.ReadOnlyError,
)
_Mark = tuple[int, int, int, int]
_PRAGMAS: Final = ("query_only = ON", "trusted_schema = OFF", "cell_size_check = ON")


_OURS: Final = """
SELECT count(*) FROM sqlite_schema WHERE type = 'table'
AND name IN ('schema_migrations', 'jobs', 'events')
"""


class Source:
    """An open file.

    Without a log beside it nobody has it open, and it is read as the file that it is: no side file
    is made, so that a copy in a directory that cannot be written to is as good as any. Should
    somebody open it meanwhile, what was just looked at is looked at again through the log.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, slice_seconds: float = SLICE_SECONDS
    ) -> None:
        self.path = Path(os.path.realpath(path))
        self._slice_seconds = slice_seconds
        self._alone: _Mark | None = None
        self.db = self._open()

    def at_a_moment(self, look: Callable[[Short], T]) -> T:
        """Return what `look` returns of one moment, or of several short ones that it renews."""
        busy = 0
        while True:
            try:
                with Short(self.db, self._slice_seconds).looking() as view:
                    seen = look(view)
            except (
                apsw.BusyError,
                apsw.LockedError,
            ) as exc:  # a log is recovered or removed
                busy += 1
                if busy == BUSY_MAX:
                    raise StorageUnavailableError("others keep the database to themselves") from exc
                continue
            except ELSEWHERE as exc:
                raise as_ours(exc) from exc
            except ENGINE_ERRORS:  # what somebody writes meanwhile looks like damage
                if self.undisturbed():
                    raise
                continue
            if self.undisturbed():
                return seen

    def undisturbed(self) -> bool:
        """Whether what was just read was read rightly; opens the file anew if it was not."""
        if self._alone is None or self._alone == self._mark():
            return True
        self.db.close()
        self.db = self._open()
        return False

    def require_current(self) -> None:
        """Refuse a file that is none of this store's, or of another version.

        One whose pages are damaged passes: what is left of it can still be looked at.
        """
        try:
            if schema.is_fresh(self.db):
                raise OpenRefusedError("the file holds no database yet")
            version = schema.user_version(self.db)
            ours = self.db.execute(_OURS).get
        except ENGINE_ERRORS:
            return
        except StorageUnavailableError:
            return
        if not ours:
            raise ForeignSchemaError("the tables are another program's")
        if 0 < version < schema.SCHEMA_VERSION:
            raise SchemaVersionError(
                "the file is of an older version: let a server open it, which upgrades it, first",
                version=version,
            )
        if version > schema.SCHEMA_VERSION:
            raise SchemaVersionError("the schema is newer than this build", version=version)

    @property
    def log_bytes(self) -> int:
        """The size of the log, which cannot be emptied beyond the moment that is looked at."""
        try:
            return Path(f"{self.path}-wal").stat().st_size
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        self.db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _mark(self) -> _Mark | None:
        """Return what changes when somebody writes to the file; None if it has a log."""
        try:
            return self._looks()
        except OSError as exc:
            raise StorageUnavailableError(
                "the database file cannot be read", errno=exc.errno or 0
            ) from exc

    def _looks(self) -> _Mark | None:
        if any(Path(f"{self.path}{suffix}").exists() for suffix in ("-wal", "-journal")):
            return None
        found = self.path.stat()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns

    def _open(self) -> apsw.Connection:
        self._alone = self._mark()
        uri = f"{self.path.as_uri()}?mode=ro" + ("&immutable=1" if self._alone else "")
        try:
            db = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        except ENGINE_ERRORS as exc:
            raise as_ours(exc) from exc
        try:
            db.set_busy_timeout(BUSY_TIMEOUT_MS)
            for pragma in _PRAGMAS:
                db.execute(f"PRAGMA {pragma}")
            db.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
            db.limit(apsw.SQLITE_LIMIT_LENGTH, ROW_BYTES_MAX)
            self._first_look(db)
        except BaseException:
            db.close()
            raise
        return db

    def _first_look(self, db: apsw.Connection) -> None:
        """Have the files opened now, so that what cannot be read at all is told from damage."""
        try:
            db.pragma("schema_version")
        except apsw.CantOpenError as exc:
            raise StorageUnavailableError(
                "the log beside the file cannot be used here; copy both to where you can write"
                if self._alone is None
                else "the database file cannot be opened"
            ) from exc
        except ELSEWHERE as exc:
            raise as_ours(exc) from exc
        except ENGINE_ERRORS:
            return  # the pages; whoever looks at them says so
