"""The moments at which a verification looks: many short ones, so that the log can be emptied."""

from __future__ import annotations

from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Final, Protocol

from rookhold_store.connection import ENGINE_ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

SLICE_SECONDS: Final = 0.2


class View(Protocol):
    """A connection that sees one moment until it is told to see a later one."""

    db: apsw.Connection

    def due(self) -> bool:
        """Whether this moment has been looked at for long enough."""

    def renew(self) -> None:
        """Look at the present; no statement may be under way."""


class Held:
    """One moment throughout: the transaction of whoever lent the connection."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db

    def due(self) -> bool:
        return False

    def renew(self) -> None:
        """Stay."""


class Short:
    """A moment of a connection of our own."""

    def __init__(self, db: apsw.Connection, seconds: float) -> None:
        self.db = db
        self._seconds = seconds
        self._until = 0.0

    @contextmanager
    def looking(self) -> Iterator[Short]:
        self._begin()
        try:
            yield self
        finally:
            self._end()

    def due(self) -> bool:
        return monotonic() >= self._until

    def renew(self) -> None:
        self._end()
        self._begin()

    def _begin(self) -> None:
        self.db.execute("BEGIN")
        self._until = monotonic() + self._seconds

    def _end(self) -> None:
        try:
            if self.db.in_transaction:  # an error of the disk may have ended it
                self.db.execute("ROLLBACK")
        except ENGINE_ERRORS:
            return
