"""The sum of all outstanding reservations, kept beside the ledger on the writer's connection.

Asked of the ledger itself, the sum would visit every retained job. Temporary triggers tell each
change, those by cascade too, and the number follows what the transaction does: back with an
operation that is rolled back, back to its beginning with all of it. (A temporary table would follow
by itself; it costs a second transaction, and a second savepoint for each operation.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import apsw

    from rookhold_store.writer import Work

_TRACK: Final = """
CREATE TEMP TRIGGER reservation_made AFTER INSERT ON main.job_storage_usage
WHEN NEW.reserved_bytes <> 0
BEGIN SELECT reservation_changed(NEW.reserved_bytes); END;
CREATE TEMP TRIGGER reservation_changed
AFTER UPDATE OF reserved_bytes ON main.job_storage_usage
WHEN NEW.reserved_bytes <> OLD.reserved_bytes
BEGIN SELECT reservation_changed(NEW.reserved_bytes - OLD.reserved_bytes); END;
CREATE TEMP TRIGGER reservation_ended AFTER DELETE ON main.job_storage_usage
WHEN OLD.reserved_bytes <> 0
BEGIN SELECT reservation_changed(-OLD.reserved_bytes); END;
"""
# Only an unfinished or an unsigned job has a reservation, and each of the two has an index of its
# own, so that this costs no more with a million retained jobs.
RECOUNT: Final = """
SELECT coalesce(sum(u.reserved_bytes), 0) FROM (
  SELECT job_id FROM jobs WHERE finished_at_ms IS NULL AND status IN ('queued', 'running')
  UNION ALL
  SELECT job_id FROM attestation_outbox INDEXED BY attestation_outbox_due
    WHERE failed_at_ms IS NULL
) held CROSS JOIN job_storage_usage u ON u.job_id = held.job_id
"""


class Reservations:
    """Belongs to the writer's thread. `outstanding` is as of the present transaction."""

    def __init__(self) -> None:
        self.outstanding = 0
        self._committed = 0

    def track(self, db: apsw.Connection) -> None:
        """Begin on a connection, between transactions; changes nothing in the file."""
        self.outstanding = self._committed = int(db.execute(RECOUNT).get)
        db.create_scalar_function("reservation_changed", self._change, 1)
        db.execute(_TRACK)
        db.set_rollback_hook(self._rolled_back)

    def committed(self) -> None:
        """Say that a transaction has ended, well or not; the next one has not begun."""
        self._committed = self.outstanding

    def undo_to(self, db: apsw.Connection, before: int) -> None:
        """Say that one operation failed; `before` is what was outstanding when it began.

        Where SQLite has rolled all of the transaction back, that has been told already.
        """
        if db.in_transaction:
            self.outstanding = before

    def _change(self, *by: Any) -> None:
        self.outstanding += by[0]

    def _rolled_back(self) -> None:
        self.outstanding = self._committed


class Followed:
    """Work whose failure takes its changes of the sum back."""

    __slots__ = ("_reservations", "_work", "size")

    def __init__(self, work: Work, reservations: Reservations) -> None:
        self._work = work
        self._reservations = reservations
        self.size = work.size

    def run(self, db: apsw.Connection) -> object:
        before = self._reservations.outstanding
        try:
            return self._work.run(db)
        except BaseException:
            self._reservations.undo_to(db, before)
            raise
