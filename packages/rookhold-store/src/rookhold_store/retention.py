"""Removing what is older than its age, in transactions that are all short."""

# ruff: noqa: S608  # statements are made of constants of this module alone; values are bindings

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from rookhold_store.accounting import ROW_BYTES, row_bytes
from rookhold_store.errors import InvalidOperationError, StorageUnavailableError
from rookhold_store.operations import Sweep, Swept

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

JOBS_MAX: Final = 64
EVENTS_MAX: Final = 4096
BYTES_MAX: Final = 2 * 1024 * 1024  # besides specs: what is in one row of its own goes quickly
# After this the transaction takes no further job. What it has begun, and its commit, come on top.
WORK_SECONDS: Final = 0.015
# Taking the receipt out of a row writes all of the row anew, its spec too.
ROW_REWRITTEN_MAX: Final = 1024 * 1024

_BEGUN: Final = "SELECT job_id FROM retention_tombstones ORDER BY marked_at_ms, job_id LIMIT ?"
_OLD: Final = """
FROM jobs j INDEXED BY jobs_finished WHERE j.finished_at_ms IS NOT NULL AND j.finished_at_ms < ?
AND NOT EXISTS (SELECT 1 FROM retention_tombstones t WHERE t.job_id = j.job_id)
"""
_OLDEST: Final = f"SELECT j.job_id {_OLD} ORDER BY j.finished_at_ms, j.job_id LIMIT ?"
_MORE: Final = f"""
SELECT EXISTS (SELECT 1 FROM retention_tombstones) OR EXISTS (SELECT 1 {_OLD})
"""
_SIZE: Final = """
SELECT u.retained_bytes - octet_length(j.spec_json),
  octet_length(j.spec_json) + coalesce(octet_length(j.effective_spec_json), 0),
  coalesce(octet_length(j.receipt_json), 0)
FROM jobs j JOIN job_storage_usage u USING (job_id) WHERE j.job_id = ?
"""
_COUNT: Final = "SELECT count(*) FROM (SELECT 1 FROM events WHERE job_id = ? LIMIT ?)"
_DELETE: Final = "DELETE FROM jobs WHERE job_id = ?"
_MARK: Final = "INSERT INTO retention_tombstones (job_id, marked_at_ms) VALUES (?, ?)"
_KEYS: Final = """
SELECT tenant, idempotency_key, request_sha256, job_id FROM idempotency_keys WHERE job_id = ?
"""
_DELETE_KEYS: Final = "DELETE FROM idempotency_keys WHERE job_id = ?"
_CLEAR_RECEIPT: Final = "UPDATE jobs SET receipt_json = NULL WHERE job_id = ?"
_NEWEST: Final = f"""
SELECT seq, {ROW_BYTES} + octet_length(kind) + octet_length(data_json) + octet_length(prev_hash)
  + octet_length(event_hash) FROM events WHERE job_id = ? ORDER BY seq DESC LIMIT ?
"""
_DELETE_NEWEST: Final = "DELETE FROM events WHERE job_id = ? AND seq >= ?"
_RELEASE: Final = """
UPDATE job_storage_usage SET retained_bytes = retained_bytes - ? WHERE job_id = ?
"""


class PreparedSweep:
    """One transaction of retention; the message says what is old, the file whose turn it is."""

    size = BYTES_MAX

    def __init__(self, op: Sweep) -> None:
        if op.age_ms < 0:
            raise InvalidOperationError("an age is not negative", age_ms=op.age_ms)
        if not 1 <= op.max_jobs <= JOBS_MAX:
            raise InvalidOperationError(f"max_jobs is outside 1..{JOBS_MAX}", value=op.max_jobs)
        self._op = op

    def run(self, db: apsw.Connection) -> Swept:
        op = self._op
        before_ms = op.now_ms - op.age_ms
        jobs, events, size = op.max_jobs, EVENTS_MAX, BYTES_MAX
        hidden: list[str] = []
        until = monotonic() + WORK_SECONDS
        for job_id, begun in _candidates(db, before_ms, op.max_jobs):
            first = jobs == op.max_jobs
            has_events = db.execute(_COUNT, (job_id, events + 1)).get
            weight, row, receipt = _size(db, job_id)
            if has_events <= events and (weight <= size or (begun and has_events == 0 and first)):
                db.execute(_DELETE, (job_id,))
                jobs, events, size = jobs - 1, events - has_events, size - weight
            elif first:
                events -= _shorten(
                    db, job_id, marked_ms=None if begun else op.now_ms, row=row, receipt=receipt
                )
                until = 0.0
            else:
                break
            if not begun:
                hidden.append(job_id)
            if jobs == 0 or monotonic() >= until:
                break
        return Swept(
            jobs_deleted=op.max_jobs - jobs,
            events_deleted=EVENTS_MAX - events,
            more_remaining=bool(db.execute(_MORE, (before_ms,)).get),
            hidden=tuple(hidden),
        )


def _candidates(db: apsw.Connection, before_ms: int, limit: int) -> Iterator[tuple[str, bool]]:
    """Yield whose turn it is, and whether its removal has begun.

    What has begun comes first, however old it is by now: it has no receipt and nobody sees it.
    """
    for sql, bindings, begun in ((_BEGUN, (limit,), True), (_OLDEST, (before_ms, limit), False)):
        rows: list[Any] = db.execute(sql, bindings).fetchall()
        for (job_id,) in rows:
            yield job_id, begun


def _size(db: apsw.Connection, job_id: str) -> tuple[int, int, int]:
    """Return the bytes besides the spec, those of the row besides the receipt, the receipt's."""
    sizes: tuple[int, int, int] | None = db.execute(_SIZE, (job_id,)).get
    if sizes is None:
        raise StorageUnavailableError("the job has no storage account")
    return sizes


def _shorten(
    db: apsw.Connection, job_id: str, *, marked_ms: int | None, row: int, receipt: int
) -> int:
    """Hide a job and take away what goes first; return how many events that were."""
    freed = 0
    if marked_ms is not None:
        db.execute(_MARK, (job_id, max(marked_ms, 0)))
        freed += sum(row_bytes(*key) for key in db.execute(_KEYS, (job_id,)))
        db.execute(_DELETE_KEYS, (job_id,))
        if row <= ROW_REWRITTEN_MAX:
            db.execute(_CLEAR_RECEIPT, (job_id,))
            freed += receipt
    count = size = 0
    oldest = None
    newest: list[Any] = db.execute(_NEWEST, (job_id, EVENTS_MAX)).fetchall()
    for seq, charge in newest:
        if count and size + charge > BYTES_MAX:
            break
        oldest, count, size = seq, count + 1, size + charge
    if oldest is not None:
        db.execute(_DELETE_NEWEST, (job_id, oldest))
    db.execute(_RELEASE, (freed + size, job_id))
    return count
