"""The instance lock: one server process per database file."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from rookhold_store.errors import (
    DatabaseLockedError,
    StorageUnavailableError,
    UnsafeDatabasePathError,
)

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
        while self._descriptor is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            try:
                descriptor = os.open(self.path, flags, 0o600)
            except OSError as exc:
                raise UnsafeDatabasePathError(
                    "the lock file is a link or cannot be opened", errno=exc.errno or 0
                ) from exc
            try:
                self._claim(descriptor)
                current = self._is_at_its_name(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            if current:
                self._descriptor = descriptor
            else:  # somebody removed it meanwhile, and the next to come would lock another file
                os.close(descriptor)

    def _claim(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()):
            raise UnsafeDatabasePathError("the lock file is not our regular file")
        if found.st_nlink > 1:  # what is done to it would be done to the file of the other name
            raise UnsafeDatabasePathError("the lock file has another name")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise DatabaseLockedError(
                "another process uses this database; stop that gateway first"
            ) from exc
        except OSError as exc:
            raise StorageUnavailableError("the file system does not support locks") from exc
        if stat.S_IMODE(found.st_mode) != 0o600:
            os.fchmod(descriptor, 0o600)

    def _is_at_its_name(self, descriptor: int) -> bool:
        try:
            named = self.path.lstat()
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(descriptor))

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
