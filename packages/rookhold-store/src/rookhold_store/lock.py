"""The instance lock: one server process per database file."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from rookhold_store.errors import DatabaseLockedError, UnsafeDatabasePathError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class InstanceLock:
    """An exclusive advisory lock beside the database, held until `release` or process end.

    The store itself does not take it: a library user may open a database twice, a server may not.
    """

    def __init__(self, database: str | os.PathLike[str]) -> None:
        wanted = Path(database)
        self.path = Path(os.path.realpath(wanted.parent), f".{wanted.name}.rookhold.lock")
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock now, or raise DatabaseLockedError; never waits."""
        if self._descriptor is not None:
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self.path, flags, 0o600)
        except OSError as exc:
            raise UnsafeDatabasePathError("the lock file is a link or cannot be opened") from exc
        try:
            self._claim(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _claim(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()):
            raise UnsafeDatabasePathError("the lock file is not our regular file")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise DatabaseLockedError("another process uses this database") from exc
        if stat.S_IMODE(found.st_mode) != 0o600:
            os.fchmod(descriptor, 0o600)

    def release(self) -> None:
        """Give the lock back. The file stays: removing it would let two holders lock two files."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
