"""How many jobs each tenant has in each status, kept so that nobody who asks has to count them.

What was there at the open is counted once, in a thread of its own and in a view of that moment;
temporary triggers on the writer's connection tell every change since, those by cascade too.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import apsw

from rookhold_store.connection import ENGINE_ERRORS, open_reader
from rookhold_store.errors import StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rookhold_store.writer import Work

logger = logging.getLogger(__name__)

# A job whose removal has begun is seen by nobody, and not counted from then on.
_TRACK: Final = """
CREATE TEMP TRIGGER tally_made AFTER INSERT ON main.jobs
BEGIN SELECT tally_changed(NEW.tenant, NULL, NEW.status); END;
CREATE TEMP TRIGGER tally_moved AFTER UPDATE OF status ON main.jobs WHEN NEW.status <> OLD.status
BEGIN SELECT tally_changed(NEW.tenant, OLD.status, NEW.status); END;
CREATE TEMP TRIGGER tally_hidden AFTER INSERT ON main.retention_tombstones
BEGIN SELECT tally_changed(tenant, status, NULL) FROM jobs WHERE job_id = NEW.job_id; END;
CREATE TEMP TRIGGER tally_removed BEFORE DELETE ON main.jobs
WHEN NOT EXISTS (SELECT 1 FROM retention_tombstones WHERE job_id = OLD.job_id)
BEGIN SELECT tally_changed(OLD.tenant, OLD.status, NULL); END;
"""
_COUNT: Final = """
SELECT tenant, status, count(*) FROM jobs INDEXED BY jobs_by_tenant_status GROUP BY tenant, status
"""
_HIDDEN: Final = """
SELECT tenant, status, -count(*) FROM retention_tombstones CROSS JOIN jobs USING (job_id)
GROUP BY tenant, status
"""


class JobTally:
    """Begun once for a store, before its writer has done anything."""

    def __init__(self, db: apsw.Connection, path: Path) -> None:
        """`db` is the writer's connection, between transactions; nothing in the file changes."""
        self._changes: list[tuple[str, str | None, str | None]] = []  # of the transaction
        self._lock = threading.Lock()  # over `_counts`; never held for longer than a few look-ups
        self._counts: dict[str, Counter[str]] = {}
        self._counted = threading.Event()
        self._failed = self._closed = False
        db.create_scalar_function("tally_changed", self._change, 3)
        db.execute(_TRACK)
        self._view = open_reader(path)
        self._view.execute("BEGIN")
        self._view.execute("SELECT count(*) FROM schema_migrations").fetchall()  # holds the moment
        self._thread = threading.Thread(
            target=self._count, name="rookhold-store-tally", daemon=True
        )
        self._thread.start()

    def followed(self, work: Work) -> Work:
        """Return the work as the writer is to run it."""
        return _Followed(work, self._changes)

    def committed(self, operations: int) -> None:
        """Say that a transaction has ended, and how many operations came through; 0 also if none.

        An operation that failed alone has taken its changes back already.
        """
        if operations:
            with self._lock:
                for tenant, before, after in self._changes:
                    self._add(tenant, before, -1)
                    self._add(tenant, after, 1)
        self._changes.clear()

    def of(self, tenant: str, *, wait_seconds: float = 0) -> Mapping[str, int] | None:
        """Return a tenant's jobs by status, without those that are none; None while still counting.

        Raises StorageUnavailableError where the count failed: then it is not known until the next
        open.
        """
        if not self._counted.wait(wait_seconds):
            return None
        if self._failed:
            raise StorageUnavailableError("the jobs could not be counted at the open")
        with self._lock:
            counts = self._counts.get(tenant) or Counter()
            return {status: count for status, count in counts.items() if count > 0}

    def close(self) -> None:
        """End a count under way, and with it its hold on the log."""
        self._closed = True
        with suppress(apsw.ConnectionClosedError):  # it has just come to its end
            if not self._counted.is_set():
                self._view.interrupt()
        self._thread.join()

    def _count(self) -> None:
        try:
            found = [] if self._closed else self._look()
        except ENGINE_ERRORS as exc:
            self._failed = True
            if not self._closed:
                logger.error("the jobs could not be counted: %s", type(exc).__name__)
        else:
            with self._lock:
                for tenant, status, count in found:
                    self._add(tenant, status, count)
        finally:
            self._view.close()
            self._counted.set()

    def _look(self) -> list[tuple[str, str, int]]:
        return [row for query in (_COUNT, _HIDDEN) for row in self._view.execute(query)]

    def _change(self, *change: Any) -> None:
        self._changes.append(change)

    def _add(self, tenant: str, status: str | None, by: int) -> None:
        if status is not None:
            self._counts.setdefault(tenant, Counter())[status] += by


class _Followed:
    """Work whose failure takes back what it has told."""

    __slots__ = ("_changes", "_work", "size")

    def __init__(self, work: Work, changes: list[Any]) -> None:
        self._work = work
        self._changes = changes
        self.size = work.size

    def run(self, db: apsw.Connection) -> object:
        before = len(self._changes)
        try:
            return self._work.run(db)
        except BaseException:
            del self._changes[before:]
            raise
