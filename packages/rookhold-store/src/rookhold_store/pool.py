"""The connections that reads run on: a pool for any thread, and one lent for a consistent view."""

from __future__ import annotations

import contextlib
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rookhold_store.connection import ENGINE_ERRORS, as_ours, open_reader
from rookhold_store.errors import StoreClosedError
from rookhold_store.reads import Reads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    import apsw

    from rookhold_store.rows import EventTexts, ReplayRows
    from rookhold_store.standing import OpenFiles

IDLE_MAX: Final = 8  # connections kept for later; how many are in use, the callers' threads bound


class Snapshot(Reads):
    """Reads that all see the same moment."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    @contextmanager
    def _use(self) -> Iterator[apsw.Connection]:
        with _reading():
            yield self._db


class ReadPool(Reads):
    """Reads over a few connections that threads borrow for one call at a time."""

    def __init__(self, path: Path, *, standing: OpenFiles | None = None) -> None:
        self._path = path
        self._standing = standing
        self._idle: deque[apsw.Connection] = deque()
        self._closed = False

    @contextmanager
    def _use(self) -> Iterator[apsw.Connection]:
        with self._lend() as db, _reading():
            yield db

    def connection(self) -> AbstractContextManager[apsw.Connection]:
        """Lend what a read of another module of this wheel runs on."""
        return self._use()

    @contextmanager
    def _lend(self) -> Iterator[apsw.Connection]:
        if self._closed:
            raise StoreClosedError("the store is closed")
        with _reading():
            db = self._borrow()
        try:
            yield db
        finally:
            self._give_back(db)

    def _borrow(self) -> apsw.Connection:
        try:
            return self._idle.pop()
        except IndexError:
            if self._standing is not None:
                self._standing.check()
            return open_reader(self._path)

    def _give_back(self, db: apsw.Connection) -> None:
        # One whose view could not be ended would keep the log from shrinking for ever.
        if self._closed or len(self._idle) >= IDLE_MAX or db.in_transaction:
            db.close()
        else:
            self._idle.append(db)
            if self._closed:  # meanwhile, and perhaps too late for `close` to see this one
                self.close()

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Lend one consistent view; hold it briefly, for it keeps the log from shrinking."""
        with self._lend() as db:
            with _reading():
                db.execute("BEGIN")
            try:
                yield Snapshot(db)  # what the borrower raises meanwhile is the borrower's own
            finally:
                with _reading():
                    db.execute("COMMIT")

    def replay(
        self, tenant: str | None, job_id: str, after: int = 0, limit: int = 1000
    ) -> ReplayRows | None:
        """Do the same in one view: `complete` must be of the moment of the events."""
        with self.snapshot() as view:
            return view.replay(tenant, job_id, after, limit)

    def event_texts(
        self, tenant: str | None, job_id: str, after: int, *, limit: int, max_bytes: int
    ) -> EventTexts | None:
        """Do the same in one view, as for `replay`."""
        with self.snapshot() as view:
            return view.event_texts(tenant, job_id, after, limit=limit, max_bytes=max_bytes)

    def close(self) -> None:
        """Close what is idle; a connection in use is closed when it comes back."""
        self._closed = True
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()


@contextmanager
def _reading() -> Iterator[None]:
    try:
        yield
    except ENGINE_ERRORS as exc:
        raise as_ours(exc) from exc
