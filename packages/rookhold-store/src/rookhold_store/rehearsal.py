"""Reading beforehand what a transaction of retention will need, so that it waits for no disk."""

# ruff: noqa: S608  # statements are made of constants of this module alone; values are bindings

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from rookhold_store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import apsw

    from rookhold_store.pool import ReadPool

_JOB: Final = """
SELECT job_id, tenant, status, language, created_at_ms, octet_length(receipt_json) FROM jobs
WHERE job_id = ?
"""
# A removed job leaves each of these indexes: its page in each is looked for once.
_PLACES: Final = tuple(
    f"SELECT 1 FROM jobs INDEXED BY {index} WHERE tenant = :tenant AND job_id = :job_id{terms}"
    for index, terms in (
        ("jobs_by_tenant", " AND created_at_ms = :at"),
        ("jobs_by_tenant_status", " AND created_at_ms = :at AND status = :status"),
        ("jobs_by_tenant_language", " AND created_at_ms = :at AND language = :language"),
        (
            "jobs_by_tenant_status_language",
            " AND created_at_ms = :at AND status = :status AND language = :language",
        ),
        ("jobs_by_creation", " AND created_at_ms = :at"),
        ("sqlite_autoindex_jobs_2", ""),
    )
)
_FEWEST: Final = 8
_ROWS: Final = (
    "SELECT retained_bytes FROM job_storage_usage WHERE job_id = ?",
    "SELECT idempotency_key FROM idempotency_keys WHERE job_id = ?",
    "SELECT created_at_ms FROM job_attestations WHERE job_id = ?",
    "SELECT pending_since_ms FROM attestation_outbox WHERE job_id = ?",
)
_EVENTS: Final = """
SELECT sum(octet_length(data_json)) FROM (
  SELECT data_json FROM events WHERE job_id = ? ORDER BY seq DESC LIMIT ?)
"""


class Rehearsal:
    """Reads for one transaction after another, for about as many jobs as the last one removed.

    It runs in the thread that asks for the transaction, before the writer is held, and waits for
    the disk where it must.
    """

    def __init__(self, reads: ReadPool) -> None:
        self._reads = reads
        self._jobs = 2 * _FEWEST
        self._visited: frozenset[str] = frozenset()

    def read(self, found: Callable[[apsw.Connection, int], Iterable[str]], events: int) -> None:
        """Visit the next jobs that `found` names; what cannot be read is not this one's matter."""
        with suppress(StoreError), self._reads.connection() as db:
            before, self._visited = self._visited, frozenset(found(db, self._jobs))
            rehearse(db, self._visited - before, events)

    def learn(self, removed: int) -> None:
        """A transaction removed so many; the next one may remove somewhat more."""
        self._jobs = max(_FEWEST, 2 * removed)


def rehearse(db: apsw.Connection, job_ids: Iterable[str], events: int) -> None:
    """Visit the pages of these jobs, of at most so many events of each; changes nothing."""
    for job_id in job_ids:
        rows: list[Any] = db.execute(_JOB, (job_id,)).fetchall()
        for _, tenant, status, language, at, _ in rows:
            named = {
                "job_id": job_id,
                "tenant": tenant,
                "status": status,
                "language": language,
                "at": at,
            }
            for place in _PLACES:
                db.execute(place, named).fetchall()
        for sql in _ROWS:
            db.execute(sql, (job_id,)).fetchall()
        db.execute(_EVENTS, (job_id, events)).fetchall()
