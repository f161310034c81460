"""The queue of jobs that wait for their attestation: put off, given up, taken up again."""

# ruff: noqa: S608  # statements are made of constants alone; values are bindings

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rookhold_store.accounting import RESERVE_PENDING, ROW_BYTES, row_bytes, settle
from rookhold_store.connection import immediate
from rookhold_store.errors import InvalidOperationError, StorageUnavailableError

if TYPE_CHECKING:
    import apsw

    from rookhold_store.operations import (
        DeferAttestation,
        FailAttestation,
        RetryAttestations,
        WaiveAttestation,
    )

DELAY_MS: Final = range(100, 60_001)
CODE_MAX: Final = 128

_DEFER: Final = """
UPDATE attestation_outbox SET attempt_count = attempt_count + 1, next_attempt_ms = ?
WHERE job_id = ? AND failed_at_ms IS NULL
"""
_WAIVE: Final = "DELETE FROM attestation_outbox WHERE job_id = ? AND failed_at_ms IS NULL"
_FAIL: Final = """
UPDATE attestation_outbox SET failed_at_ms = ?, failure_code = ?, failure_profile = ?
WHERE job_id = ? AND failed_at_ms IS NULL
"""
_FAILED: Final = """
SELECT o.job_id, o.failure_code FROM attestation_outbox o WHERE o.failed_at_ms IS NOT NULL
AND NOT EXISTS (SELECT 1 FROM retention_tombstones t WHERE t.job_id = o.job_id)
"""
_REVIVE: Final = """
UPDATE attestation_outbox SET attempt_count = 0, next_attempt_ms = ?, failed_at_ms = NULL,
  failure_code = NULL, failure_profile = NULL WHERE job_id = ?
"""
# Of the terminal jobs each has an attestation, or an outbox row, or it is to be found. Counting
# visits pages of indexes, not rows: what a search of a million jobs would take seconds for.
_SETTLED: Final = """
SELECT (SELECT count(*) FROM jobs)
  - (SELECT count(*) FROM jobs WHERE status IN ('queued', 'running') AND finished_at_ms IS NULL)
  = (SELECT count(*) FROM job_attestations) + (SELECT count(*) FROM attestation_outbox)
"""
# typeof() asks a row's header for the type alone, so that no receipt is read; it comes last.
_FIND_UNLISTED: Final = """
CREATE TEMP TABLE unlisted AS
SELECT j.job_id, j.finished_at_ms FROM jobs j INDEXED BY jobs_by_id
LEFT JOIN job_attestations a ON a.job_id = j.job_id
LEFT JOIN attestation_outbox o ON o.job_id = j.job_id
WHERE j.finished_at_ms IS NOT NULL AND a.job_id IS NULL AND o.job_id IS NULL
AND NOT EXISTS (SELECT 1 FROM retention_tombstones t WHERE t.job_id = j.job_id)
AND typeof(j.receipt_json) <> 'null'
"""
_LIST: Final = """
INSERT INTO attestation_outbox (job_id, pending_since_ms, attempt_count, next_attempt_ms)
SELECT job_id, finished_at_ms, 0, finished_at_ms FROM temp.unlisted
"""
_SETTLE_LISTED: Final = f"""
UPDATE job_storage_usage SET retained_bytes = retained_bytes + {ROW_BYTES} + octet_length(job_id),
  reserved_bytes = {RESERVE_PENDING} WHERE job_id IN (SELECT job_id FROM temp.unlisted)
"""


class PreparedDefer:
    size = 128

    def __init__(self, op: DeferAttestation) -> None:
        if op.delay_ms not in DELAY_MS:
            raise InvalidOperationError("the delay is out of range", delay_ms=op.delay_ms)
        self._bindings = (op.now_ms + op.delay_ms, op.job_id)

    def run(self, db: apsw.Connection) -> bool:
        db.execute(_DEFER, self._bindings)
        return db.changes() == 1


class PreparedWaive:
    size = 128

    def __init__(self, op: WaiveAttestation) -> None:
        self._job_id = op.job_id

    def run(self, db: apsw.Connection) -> bool:
        db.execute(_WAIVE, (self._job_id,))
        if db.changes() != 1:
            return False
        settle(db, self._job_id, -row_bytes(self._job_id), pending=False)
        return True


class PreparedFail:
    size = 128

    def __init__(self, op: FailAttestation) -> None:
        if not op.code.strip() or len(op.code) > CODE_MAX or not op.profile.strip():
            raise InvalidOperationError("a waiver names its code and the profile version")
        self._op = op

    def run(self, db: apsw.Connection) -> bool:
        op = self._op
        db.execute(_FAIL, (op.now_ms, op.code, op.profile, op.job_id))
        if db.changes() != 1:
            return False
        settle(db, op.job_id, len(op.code.encode()), pending=False)
        return True


class PreparedRetry:
    size = 4096

    def __init__(self, op: RetryAttestations) -> None:
        self._op = op

    def run(self, db: apsw.Connection) -> tuple[str, ...]:
        wanted = self._op.job_ids
        if wanted is None:
            return _revive(db, db.execute(_FAILED).fetchall(), self._op.now_ms)
        rows: list[Any] = []
        for job_id in dict.fromkeys(wanted):
            rows += db.execute(f"{_FAILED} AND o.job_id = ?", (job_id,)).fetchall()
        return _revive(db, rows, self._op.now_ms)


def _revive(db: apsw.Connection, rows: list[Any], now_ms: int) -> tuple[str, ...]:
    for job_id, code in rows:
        db.execute(_REVIVE, (now_ms, job_id))
        settle(db, job_id, -len(code.encode()), pending=True)
    return tuple(job_id for job_id, _ in rows)


def reseed(db: apsw.Connection, *, profile: str, now_ms: int) -> int:
    """List again whatever should be signed and is not; return how many jobs that were.

    Jobs waived without a code are listed once more; explicit waivers stay, unless they were
    decided under another profile version. Opening never fails for a quota.
    """
    with immediate(db):
        listed = 0 if db.execute(_SETTLED).get else _list_unlisted(db)
        outdated = db.execute(f"{_FAILED} AND o.failure_profile <> ?", (profile,)).fetchall()
        revived = _revive(db, outdated, now_ms)
    return listed + len(revived)


def _list_unlisted(db: apsw.Connection) -> int:
    """List them all at once: where nobody signs, every job was waived, and is listed here."""
    db.execute(_FIND_UNLISTED)
    db.execute(_LIST)
    listed = db.changes()
    db.execute(_SETTLE_LISTED)
    if db.changes() != listed:
        raise StorageUnavailableError("a job has no storage account")
    db.execute("DROP TABLE temp.unlisted")
    return listed
