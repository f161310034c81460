"""Everything that is read: the queries, over whichever connection is lent for them."""

# ruff: noqa: S608  # statements are made of constants of this module alone; values are bindings

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from rookhold_store import reservations, schema
from rookhold_store.errors import (
    InvalidOperationError,
    OpenRefusedError,
    StorageUnavailableError,
    StoreClosedError,
)
from rookhold_store.outbox import DELAY_MS
from rookhold_store.rows import (
    AttestationRow,
    AttestationStatusRow,
    Counts,
    Cursor,
    EventText,
    EventTexts,
    JobRow,
    JobSummary,
    KeyRow,
    OutboxRow,
    PendingRow,
    QueuedRow,
    ReplayRows,
    StorageUsage,
)
from rookhold_types.events import WireEvent
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

T = TypeVar("T")

LIST_MAX: Final = 501  # a caller's page of 500 and one row to look ahead
EVENTS_MAX: Final = 5000
QUEUED_MAX: Final = 1024
RUNNING_MAX: Final = 100_000
PENDING_MAX: Final = 256

_VISIBLE: Final = "NOT EXISTS (SELECT 1 FROM retention_tombstones t WHERE t.job_id = j.job_id)"
_SUMMARY: Final = """
j.job_id, j.tenant, j.language, j.status, j.created_at_ms, j.started_at_ms, j.finished_at_ms,
j.exit_code"""
_GET: Final = f"""
SELECT {_SUMMARY}, j.admitted_mem_mb, j.spec_json, j.effective_spec_json, j.receipt_json
FROM jobs j WHERE j.job_id = ? AND {_VISIBLE}
"""
_GET_SUMMARY: Final = f"""
SELECT {_SUMMARY} FROM jobs j INDEXED BY jobs_by_id WHERE j.job_id = ? AND {_VISIBLE}
"""
_SPEC: Final = "SELECT CAST(spec_json AS BLOB) FROM jobs WHERE job_id = ?"
_EVENTS: Final = """
SELECT seq, ts_ms, kind, data_json, prev_hash, event_hash, hash_version
FROM events WHERE job_id = ? AND seq > ? ORDER BY seq LIMIT ?
"""
_EVENT_TEXTS: Final = """
SELECT seq, ts_ms, kind, CAST(data_json AS BLOB), prev_hash, event_hash, hash_version
FROM events WHERE job_id = ? AND seq > ? ORDER BY seq LIMIT ?
"""
_LAST_SEQ: Final = "SELECT coalesce(max(seq), 0) FROM events WHERE job_id = ?"
_QUEUED: Final = f"""
SELECT j.job_id, j.tenant, j.created_at_ms, j.admitted_mem_mb
FROM jobs j WHERE j.status = 'queued' AND j.finished_at_ms IS NULL
AND (j.created_at_ms, j.job_id) > (?, ?) AND {_VISIBLE}
ORDER BY j.created_at_ms, j.job_id LIMIT ?
"""
_RUNNING: Final = """
SELECT job_id FROM jobs WHERE status = 'running' AND finished_at_ms IS NULL
ORDER BY created_at_ms, job_id LIMIT ?
"""
_WAITING: Final = f"""
SELECT j.job_id, j.tenant, o.pending_since_ms, o.attempt_count, o.next_attempt_ms
FROM attestation_outbox o INDEXED BY attestation_outbox_due
CROSS JOIN jobs j INDEXED BY jobs_by_id ON j.job_id = o.job_id
WHERE o.failed_at_ms IS NULL AND {_VISIBLE} AND o.next_attempt_ms"""
_WAITING_ORDER: Final = "ORDER BY o.next_attempt_ms, o.pending_since_ms, o.job_id LIMIT ?3"
_PENDING: Final = f"""
SELECT * FROM ({_WAITING} <= ?1 {_WAITING_ORDER})
UNION ALL SELECT * FROM ({_WAITING} > ?2 {_WAITING_ORDER})
ORDER BY 5, 3, 1 LIMIT ?3
"""
_OUTBOX: Final = """
SELECT job_id, pending_since_ms, attempt_count, next_attempt_ms, failed_at_ms, failure_code,
  failure_profile FROM attestation_outbox WHERE job_id = ?
"""
_ATTESTATION: Final = f"""
SELECT a.job_id, j.tenant, a.created_at_ms, a.key_id, a.receipt_sha256, a.result_media_type,
  a.result_sha256, a.envelope_sha256, a.result_artifact, a.envelope_json
FROM job_attestations a JOIN jobs j INDEXED BY jobs_by_id ON j.job_id = a.job_id
WHERE a.job_id = ? AND {_VISIBLE}
"""
_ATTESTATION_STATUS: Final = f"""
SELECT a.job_id, j.tenant, a.created_at_ms, a.key_id, a.receipt_sha256, a.result_media_type,
  a.result_sha256, octet_length(a.result_artifact), a.envelope_sha256, octet_length(a.envelope_json)
FROM job_attestations a JOIN jobs j INDEXED BY jobs_by_id ON j.job_id = a.job_id
WHERE a.job_id = ? AND {_VISIBLE}
"""
_KEY: Final = f"""
SELECT j.job_id, j.request_sha256 FROM idempotency_keys j
WHERE j.tenant = ? AND j.idempotency_key = ? AND {_VISIBLE}
"""
_UNFINISHED: Final = frozenset({JobStatus.QUEUED, JobStatus.RUNNING})
_OUTBOX_COUNTS: Final = """
SELECT count(*) FILTER (WHERE failed_at_ms IS NULL),
  count(*) FILTER (WHERE failed_at_ms IS NOT NULL) FROM attestation_outbox
"""
_COUNT: Final = "SELECT count(*) FROM jobs WHERE tenant = ? AND status = ?"
_CHARGED_TENANT: Final = "SELECT charged_bytes FROM tenant_storage_usage WHERE tenant = ?"
_RETAINED: Final = "SELECT retained_bytes FROM job_storage_usage WHERE job_id = ?"
_CHARGED: Final = "SELECT charged_bytes FROM storage_usage_total"
_USAGE: Final = f"SELECT ({_CHARGED}), ({reservations.RECOUNT})"
_USAGE_TENANT: Final = f"""
SELECT coalesce(({_CHARGED_TENANT}), 0), ({reservations.RECOUNT} WHERE u.tenant = ?1)
"""


class Reads:
    """Each call is short and leaves no transaction behind; `_use` lends it a connection."""

    @contextmanager
    def _use(self) -> Iterator[apsw.Connection]:
        raise NotImplementedError
        yield

    def _row(self, type_: type[T], sql: str, bindings: tuple[Any, ...]) -> T | None:
        with self._use() as db:
            row = db.execute(sql, bindings).get
        return None if row is None else _typed(row, type_)

    def _rows(self, type_: type[T], sql: str, bindings: tuple[Any, ...]) -> tuple[T, ...]:
        with self._use() as db:
            rows = db.execute(sql, bindings).fetchall()
        return _typed(rows, tuple[type_, ...])  # type: ignore[valid-type]

    def get(self, tenant: str | None, job_id: str) -> JobRow | None:
        """Return a whole job; another tenant's is None, `tenant` None is the privileged view."""
        row = self._row(JobRow, _GET, (job_id,))
        return row if row is not None and tenant in (None, row.tenant) else None

    def spec_bytes(self, job_id: str) -> bytes | None:
        """Return a job's stored spec as bytes, which can be read even if they are not UTF-8."""
        with self._use() as db:
            value: bytes | None = db.execute(_SPEC, (job_id,)).get
        return value

    def summary(self, tenant: str | None, job_id: str) -> JobSummary | None:
        """Return a job without its JSON, from an index alone."""
        row = self._row(JobSummary, _GET_SUMMARY, (job_id,))
        return row if row is not None and tenant in (None, row.tenant) else None

    def list_jobs(
        self,
        tenant: str | None,
        limit: int = 50,
        cursor: Cursor | None = None,
        status: str | None = None,
        language: str | None = None,
    ) -> tuple[JobSummary, ...]:
        """Return jobs, newest first, strictly older than `cursor`; a blank tenant has none.

        A page costs the same however many jobs are retained. In the privileged view (tenant None)
        a filter costs more the rarer what it looks for is: it has one index, by creation.
        """
        _within("limit", limit, LIST_MAX)
        if tenant is not None and not tenant.strip():
            return ()
        wanted = {"tenant": tenant, "status": status, "language": language}
        terms = [f"j.{name} = ?" for name, value in wanted.items() if value is not None]
        bindings: list[Any] = [value for value in wanted.values() if value is not None]
        if cursor is not None:
            terms.append("(j.created_at_ms, j.job_id) < (?, ?)")
            bindings += [cursor.created_at_ms, cursor.job_id]
        if tenant is None and status in _UNFINISHED:  # they are few, and have an index
            terms.append("j.finished_at_ms IS NULL")
        sql = (
            f"SELECT {_SUMMARY} FROM jobs j WHERE {' AND '.join([*terms, _VISIBLE])} "
            "ORDER BY j.created_at_ms DESC, j.job_id DESC LIMIT ?"
        )
        return self._rows(JobSummary, sql, (*bindings, limit))

    def events_after(self, job_id: str, after: int = 0, limit: int = 1000) -> tuple[WireEvent, ...]:
        """Return events with a `seq` above `after`, ascending; of any tenant."""
        _within("limit", limit, EVENTS_MAX)
        with self._use() as db:
            rows = db.execute(_EVENTS, (job_id, max(after, 0), limit)).fetchall()
        return tuple(_event(row) for row in rows)

    def replay(
        self, tenant: str | None, job_id: str, after: int = 0, limit: int = 1000
    ) -> ReplayRows | None:
        """Return a page of a job's history, or None if the tenant has no such job."""
        job = self.summary(tenant, job_id)
        if job is None:
            return None
        events = self.events_after(job_id, after, limit)
        end = events[-1].seq if events else max(after, 0)
        return ReplayRows(events=events, complete=job.terminal and self.last_seq(job_id) <= end)

    def event_texts(
        self, tenant: str | None, job_id: str, after: int, *, limit: int, max_bytes: int
    ) -> EventTexts | None:
        """Return what follows `after`, or None if the tenant has no such job.

        Ends with the event that brings it to `max_bytes`, so that a reader who takes little at a
        time never makes more than that and one event be held for it.
        """
        _within("limit", limit, EVENTS_MAX)
        job = self.summary(tenant, job_id)
        if job is None:
            return None
        events: list[EventText] = []
        size = 0
        with self._use() as db:
            for row in db.execute(_EVENT_TEXTS, (job_id, max(after, 0), limit)):
                text = _event_text(row)
                events.append(text)
                size += text.size
                if size >= max_bytes:
                    break
        end = events[-1].seq if events else max(after, 0)
        complete = job.terminal and self.last_seq(job_id) <= end
        return EventTexts(events=tuple(events), complete=complete)

    def last_seq(self, job_id: str) -> int:
        """Return the number of the last event, 0 if there is none."""
        with self._use() as db:
            return int(db.execute(_LAST_SEQ, (job_id,)).get)

    def queued_page(self, after: Cursor | None = None, limit: int = 256) -> tuple[QueuedRow, ...]:
        """Return waiting jobs of all tenants, oldest first, strictly younger than `after`."""
        _within("limit", limit, QUEUED_MAX)
        start = (-1, "") if after is None else (after.created_at_ms, after.job_id)
        return self._rows(QueuedRow, _QUEUED, (*start, limit))

    def running_ids(self, limit: int = 32) -> tuple[str, ...]:
        """Return ids of running jobs, oldest first."""
        _within("limit", limit, RUNNING_MAX)
        with self._use() as db:
            return tuple(row[0] for row in db.execute(_RUNNING, (limit,)))

    def pending_attestations(self, now_ms: int, limit: int = 32) -> tuple[PendingRow, ...]:
        """Return what is due for signing, the longest due first.

        Nothing is ever put off by more than the longest delay: what lies further ahead was written
        before the clock was set back, and is due as well.
        """
        _within("limit", limit, PENDING_MAX)
        return self._rows(PendingRow, _PENDING, (now_ms, now_ms + DELAY_MS[-1], limit))

    def outbox(self, job_id: str) -> OutboxRow | None:
        return self._row(OutboxRow, _OUTBOX, (job_id,))

    def attestation(self, tenant: str | None, job_id: str) -> AttestationRow | None:
        """Return the stored attestation with its exact bytes."""
        row = self._row(AttestationRow, _ATTESTATION, (job_id,))
        return row if row is not None and tenant in (None, row.tenant) else None

    def attestation_status(self, tenant: str | None, job_id: str) -> AttestationStatusRow | None:
        """Return the stored attestation without reading its bytes."""
        row = self._row(AttestationStatusRow, _ATTESTATION_STATUS, (job_id,))
        return row if row is not None and tenant in (None, row.tenant) else None

    def find_key(self, tenant: str, key: str) -> KeyRow | None:
        """Return what an idempotency key of this tenant stands for."""
        return self._row(KeyRow, _KEY, (tenant, key))

    def counts(self, tenant: str) -> Counts:
        """Return how many jobs of a tenant wait and run; costs no more than their number."""
        with self._use() as db:
            queued = db.execute(_COUNT, (tenant, "queued")).get
            running = db.execute(_COUNT, (tenant, "running")).get
        return Counts(queued=queued, running=running)

    def outbox_counts(self) -> tuple[int, int]:
        """Return how many jobs wait for their signature, and how many were given up with a code."""
        with self._use() as db:
            pending, failed = db.execute(_OUTBOX_COUNTS).get
        return int(pending), int(failed)

    def retained_bytes(self, job_id: str) -> int:
        """Return how many bytes the rows of a job hold, 0 without such a job; of any tenant."""
        with self._use() as db:
            return int(db.execute(_RETAINED, (job_id,)).get or 0)

    def charged_bytes(self, tenant: str | None = None) -> int:
        """Return what a tenant, or everybody together, is charged."""
        with self._use() as db:
            if tenant is None:
                return int(db.execute(_CHARGED).get)
            return int(db.execute(_CHARGED_TENANT, (tenant,)).get or 0)

    def storage_usage(self, tenant: str | None = None) -> StorageUsage:
        """Return what a tenant, or everybody together, is charged, and what of it is promised.

        Visits the unfinished and the unsigned jobs, of all tenants, and no others.
        """
        with self._use() as db:
            if tenant is None:
                charged, reserved = db.execute(_USAGE).get
            else:
                charged, reserved = db.execute(_USAGE_TENANT, (tenant,)).get
        return StorageUsage(retained_bytes=charged - reserved, reserved_bytes=reserved)

    def probe(self) -> bool:
        """Whether both version markers are right and jobs and events readable; repairs nothing."""
        try:
            with self._use() as db:
                schema.check_versions(db)
                db.execute("SELECT job_id, status FROM jobs LIMIT 1").fetchall()
                db.execute("SELECT job_id, seq FROM events LIMIT 1").fetchall()
        except (OpenRefusedError, StorageUnavailableError, StoreClosedError):
            return False
        return True


def _within(name: str, value: int, most: int) -> None:
    if not 1 <= value <= most:
        raise InvalidOperationError(f"{name} is outside 1..{most}", value=value)


def _typed(value: object, type_: type[T]) -> T:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as exc:
        raise StorageUnavailableError("a stored row has another shape than its table") from exc


def _event_text(row: tuple[Any, ...]) -> EventText:
    seq, ts_ms, kind, data_json, prev_hash, event_hash, hash_version = row
    head = msgspec.json.encode({"seq": seq, "ts_ms": ts_ms, "kind": kind})
    tail = msgspec.json.encode(
        {"prev_hash": prev_hash, "event_hash": event_hash, "hash_version": hash_version}
    )
    return EventText(seq, kind, (head[:-1] + b',"data":', data_json, b"," + tail[1:]))


def _event(row: tuple[Any, ...]) -> WireEvent:
    seq, ts_ms, kind, data_json, prev_hash, event_hash, hash_version = row
    try:
        data = msgspec.json.decode(data_json)
    except msgspec.DecodeError as exc:
        raise StorageUnavailableError("stored event data is not JSON", seq=seq) from exc
    return WireEvent(
        seq=seq,
        ts_ms=ts_ms,
        kind=kind,
        data=data,
        prev_hash=prev_hash,
        event_hash=event_hash,
        hash_version=hash_version,
    )
