"""The sum of all outstanding reservations, kept beside the ledger on the writer's connection.

A temporary table and triggers on the ledger: the sum then follows every change, by cascade too, and
every rollback, at the cost of one row in memory. A sum asked of the ledger itself would visit every
retained job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import apsw

_TRACK: Final = """
CREATE TEMP TABLE IF NOT EXISTS outstanding_reservations (bytes INTEGER NOT NULL) STRICT;
CREATE TEMP TRIGGER IF NOT EXISTS reservation_made AFTER INSERT ON main.job_storage_usage
WHEN NEW.reserved_bytes <> 0
BEGIN UPDATE outstanding_reservations SET bytes = bytes + NEW.reserved_bytes; END;
CREATE TEMP TRIGGER IF NOT EXISTS reservation_changed
AFTER UPDATE OF reserved_bytes ON main.job_storage_usage
WHEN NEW.reserved_bytes <> OLD.reserved_bytes
BEGIN
  UPDATE outstanding_reservations SET bytes = bytes + NEW.reserved_bytes - OLD.reserved_bytes;
END;
CREATE TEMP TRIGGER IF NOT EXISTS reservation_ended AFTER DELETE ON main.job_storage_usage
WHEN OLD.reserved_bytes <> 0
BEGIN UPDATE outstanding_reservations SET bytes = bytes - OLD.reserved_bytes; END;
DELETE FROM outstanding_reservations;
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


def track(db: apsw.Connection) -> None:
    """Begin, or begin again, to keep the sum on this connection; changes nothing in the file."""
    db.execute(_TRACK)
    db.execute(f"INSERT INTO temp.outstanding_reservations {RECOUNT}")
