"""Whether the files that SQLite has open are still the ones at their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookhold_store.errors import StorageUnavailableError

if TYPE_CHECKING:
    from pathlib import Path


class OpenFiles:
    """The database and its log as they were when they were opened.

    SQLite would go on writing to a file that was moved away, removed or replaced, and everything
    that it answered then would be gone with the process. A reader opened later would even read the
    other file.
    """

    def __init__(self, path: Path) -> None:
        self._names = (path, path.with_name(path.name + "-wal"))
        self._opened = self._now()

    def check(self) -> None:
        """Raise StorageUnavailableError once one of them is not at its name any more."""
        if self._now() != self._opened:
            raise StorageUnavailableError("the database or its log was moved, removed or replaced")

    def _now(self) -> list[tuple[int, int]]:
        found = []
        for name in self._names:
            try:
                seen = name.lstat()
            except OSError:
                found.append((-1, -1))
            else:
                found.append((seen.st_dev, seen.st_ino))
        return found
