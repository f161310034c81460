"""Removing what is older than its age, in transactions that are all short."""

# ruff: noqa: S608  # statements are made of constants of this module alone; values are bindings

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from rookhold_store.accounting import ROW_BYTES, row_bytes
from rookhold_store.errors import InvalidOperationError, StorageUnavailableError
from rookhold_store.operations import Sweep, Swept

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

    from rookhold_store.rehearsal import Rehearsal

JOBS_MAX: Final = 64
EVENTS_MAX: Final = 4096
BYTES_MAX: Final = 2 * 1024 * 1024  # besides specs: what is in one row of its own goes quickly
# After this a transaction begins no other job. One that it has begun gets so much more, and what
# stands in rows of its own, and the commit, come on top.
WORK_SECONDS: Final = 0.02
GRACE_SECONDS: Final = 0.01
# A commit that takes longer than usual takes it from the work of the next transaction.
COMMIT_SECONDS: Final = 0.01
LEAST_SECONDS: Final = 0.004
# So much goes whatever the clock says: where others have the processor, time passes without work.
LEAST_EVENTS: Final = 16
LEAST_BYTES: Final = 128 * 1024
LOOKED_AT_EVENTS: Final = 256  # at a time; divides EVENTS_MAX

# A job this small goes with its row, at once. Of a longer history one event goes after another,
# with an eye on the time: what one costs cannot be told from it, since a search passes by the
# events of other jobs, and where one of those is large it is read whole each time.
SMALL_EVENTS: Final = 4
SMALL_BYTES: Final = 256 * 1024

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
_DELETE_EVENT: Final = "DELETE FROM events WHERE job_id = ? AND seq = ?"
_RELEASE: Final = """
UPDATE job_storage_usage SET retained_bytes = retained_bytes - ? WHERE job_id = ?
"""


class Pace:
    """How long a transaction may work, by how long the commits of those before it took."""

    def __init__(self) -> None:
        self._commit_seconds = 0.0
        self._worked_at: float | None = None

    def work_seconds(self) -> float:
        over = max(0.0, self._commit_seconds - COMMIT_SECONDS)
        return min(WORK_SECONDS, max(LEAST_SECONDS, WORK_SECONDS - over))

    def worked(self) -> None:
        """The work of a transaction is done, and its commit comes next."""
        self._worked_at = monotonic()

    def committed(self, operations: int) -> None:
        """A commit is on the disk; a sweep's has no other operation in it."""
        del operations
        if self._worked_at is not None:
            taken = monotonic() - self._worked_at
            self._commit_seconds = max(taken, 0.8 * self._commit_seconds)
            self._worked_at = None


class PreparedSweep:
    """One transaction of retention; the message says what is old, the file whose turn it is."""

    size = BYTES_MAX

    def __init__(self, op: Sweep, rehearsal: Rehearsal, pace: Pace) -> None:
        if op.age_ms < 0:
            raise InvalidOperationError("an age is not negative", age_ms=op.age_ms)
        if not 1 <= op.max_jobs <= JOBS_MAX:
            raise InvalidOperationError(f"max_jobs is outside 1..{JOBS_MAX}", value=op.max_jobs)
        self._op = op
        self._pace = pace
        self._rehearsal = rehearsal
        rehearsal.read(self._next, EVENTS_MAX)

    def _next(self, db: apsw.Connection, most: int) -> list[str]:
        op = self._op
        found = _candidates(db, op.now_ms - op.age_ms, min(op.max_jobs, most))
        return [job_id for job_id, _ in found]

    def run(self, db: apsw.Connection) -> Swept:
        op = self._op
        before_ms = op.now_ms - op.age_ms
        budget = _Budget(jobs=op.max_jobs, until=monotonic() + self._pace.work_seconds())
        hidden: list[str] = []
        for job_id, begun in _candidates(db, before_ms, op.max_jobs):
            if not budget.untouched and budget.spent:
                break
            job = _look(db, job_id, begun, budget)
            if job is None or not _remove(db, job, op.now_ms, budget):
                break
            if not begun:
                hidden.append(job_id)
        self._rehearsal.learn(op.max_jobs - budget.jobs)
        swept = Swept(
            jobs_deleted=op.max_jobs - budget.jobs,
            events_deleted=EVENTS_MAX - budget.events,
            more_remaining=bool(db.execute(_MORE, (before_ms,)).get),
            hidden=tuple(hidden),
        )
        self._pace.worked()
        return swept


class _Budget(Struct):
    """What a transaction may still do."""

    jobs: int
    until: float
    events: int = EVENTS_MAX
    bytes: int = BYTES_MAX
    untouched: bool = True

    @property
    def spent(self) -> bool:
        return self.jobs == 0 or self.events <= 0 or monotonic() >= self.until


class _Job(Struct, frozen=True, kw_only=True):
    """A job whose turn it is; of its events no more are counted than the budget has room for."""

    job_id: str
    begun: bool
    events: int | None  # None of one that is too large for a transaction, however many they are
    weight: int  # bytes of all its rows, the spec left out
    row_bytes: int  # of its own row, the receipt left out
    receipt_bytes: int


def _candidates(db: apsw.Connection, before_ms: int, limit: int) -> Iterator[tuple[str, bool]]:
    """Yield whose turn it is, and whether its removal has begun.

    What has begun comes first, however old it is by now: it has no receipt and nobody sees it.
    """
    for sql, bindings, begun in ((_BEGUN, (limit,), True), (_OLDEST, (before_ms, limit), False)):
        rows: list[Any] = db.execute(sql, bindings).fetchall()
        for (job_id,) in rows:
            yield job_id, begun


def _look(db: apsw.Connection, job_id: str, begun: bool, budget: _Budget) -> _Job | None:
    """Look at a job; None if it is too large for what is left of a budget.

    A search among events reads every large one that it meets, 1 ms for each MiB. So where they may
    be large they are not counted beforehand.
    """
    sizes: tuple[int, int, int] | None = db.execute(_SIZE, (job_id,)).get
    if sizes is None:
        raise StorageUnavailableError("the job has no storage account")
    weight, row, receipt = sizes
    events: int | None = None
    if weight <= budget.bytes:
        events = db.execute(_COUNT, (job_id, budget.events + 1)).get
    elif not budget.untouched:
        return None
    return _Job(
        job_id=job_id,
        begun=begun,
        events=events,
        weight=weight,
        row_bytes=row,
        receipt_bytes=receipt,
    )


def _remove(db: apsw.Connection, job: _Job, now_ms: int, budget: _Budget) -> bool:
    """Remove a job, or as much of it as fits; False if it was left for the next transaction."""
    if not budget.untouched and job.events is not None and job.events > budget.events:
        return False
    budget.untouched = False
    budget.bytes -= job.weight
    few = job.events is not None and job.events <= SMALL_EVENTS and job.weight <= SMALL_BYTES
    if job.events is not None and (few or job.events == 0):
        budget.events -= job.events
    else:
        if not job.begun:
            db.execute(_MARK, (job.job_id, max(now_ms, 0)))
        until = max(budget.until, monotonic() + GRACE_SECONDS)
        count, freed, none_left = _shorten(db, job.job_id, until)
        budget.events -= count
        late = count and job.weight > SMALL_BYTES and monotonic() >= until
        all_gone = none_left if job.events is None else count >= job.events
        if late or not all_gone:
            _strip(db, job, freed)
            budget.until = 0.0
            return True
    db.execute(_DELETE, (job.job_id,))
    budget.jobs -= 1
    return True


def _shorten(db: apsw.Connection, job_id: str, until: float) -> tuple[int, int, bool]:
    """Delete the newest events, one at least; return how many, their bytes, and if none is left."""
    count = freed = 0
    newest: list[Any] = []

    def while_there_is_time() -> Iterator[tuple[str, int]]:
        nonlocal count, freed
        for seq, size in newest:
            enough = count >= LEAST_EVENTS or freed >= LEAST_BYTES
            if count and (freed + size > BYTES_MAX or (enough and monotonic() >= until)):
                return
            count, freed = count + 1, freed + size
            yield job_id, seq

    while count < EVENTS_MAX:
        before = count
        newest = db.execute(_NEWEST, (job_id, LOOKED_AT_EVENTS)).fetchall()
        db.executemany(_DELETE_EVENT, while_there_is_time())
        if count < before + len(newest):  # it is enough
            break
        if len(newest) < LOOKED_AT_EVENTS:
            return count, freed, True
    return count, freed, False


def _strip(db: apsw.Connection, job: _Job, freed: int) -> None:
    """Take from a hidden job what goes with its first events, and settle its account."""
    if not job.begun:
        freed += sum(row_bytes(*key) for key in db.execute(_KEYS, (job.job_id,)))
        db.execute(_DELETE_KEYS, (job.job_id,))
        if job.row_bytes <= ROW_REWRITTEN_MAX:
            db.execute(_CLEAR_RECEIPT, (job.job_id,))
            freed += job.receipt_bytes
    db.execute(_RELEASE, (freed, job.job_id))
