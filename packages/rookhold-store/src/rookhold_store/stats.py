"""How much is stored, told from small rows and indexes alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from rookhold_store.connection import ENGINE_ERRORS, as_ours
from rookhold_store.source import Source
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    import os

    import apsw

    from rookhold_store.moments import Short

SKIPPED: Final = (
    "events are not counted and no payload is read: that would take as long as a verification",
)

_JOBS: Final = "SELECT status, count(*) FROM jobs GROUP BY status"
_TIMES: Final = "SELECT min(created_at_ms), max(created_at_ms) FROM jobs"
_LEDGER: Final = """
SELECT coalesce(sum(retained_bytes), 0), coalesce(sum(reserved_bytes), 0) FROM job_storage_usage
"""
_TENANTS: Final = """
SELECT tenant, charged_bytes FROM tenant_storage_usage ORDER BY charged_bytes DESC, tenant LIMIT ?
"""
_OUTBOX: Final = """
SELECT coalesce(sum(failed_at_ms IS NULL), 0), coalesce(sum(failed_at_ms IS NOT NULL), 0)
FROM attestation_outbox
"""


class TenantCharge(Struct, frozen=True):
    tenant: str
    charged_bytes: int


class Stats(Struct, frozen=True, kw_only=True):
    """A count of everything at one moment. Times are Unix milliseconds; null without any job."""

    path: str
    version: int
    file_bytes: int
    log_bytes: int
    free_bytes: int  # pages of the file that hold nothing
    gives_back: bool  # free pages can be given back without a compaction
    jobs: int
    by_status: dict[str, int]
    oldest_created_at_ms: int | None
    newest_created_at_ms: int | None
    hidden: int  # jobs whose removal has begun
    tenants: int
    most_charged: tuple[TenantCharge, ...]
    charged_bytes: int
    retained_bytes: int
    reserved_bytes: int
    attested: int
    pending: int
    waived: int  # given up with a code
    quarantined: int
    keys: int
    skipped: tuple[str, ...] = SKIPPED


def stats(database: str | os.PathLike[str], *, most: int = 5) -> Stats:
    """Count what a database holds, with the `most` tenants that are charged the most."""
    with Source(database) as source:
        source.require_current()
        try:
            return source.at_a_moment(lambda moment: _count(source, moment, most))
        except ENGINE_ERRORS as exc:
            raise as_ours(exc) from exc


def _count(source: Source, moment: Short, most: int) -> Stats:
    db = moment.db
    by_status = dict.fromkeys((str(status) for status in JobStatus), 0)
    by_status |= dict(db.execute(_JOBS))
    retained, reserved = _row(db, _LEDGER)
    pending, waived = _row(db, _OUTBOX)
    oldest, newest = _row(db, _TIMES)
    page = int(db.pragma("page_size"))
    return Stats(
        path=str(source.path),
        version=int(db.pragma("user_version")),
        file_bytes=page * int(db.pragma("page_count")),
        log_bytes=source.log_bytes,
        free_bytes=page * int(db.pragma("freelist_count")),
        gives_back=db.pragma("auto_vacuum") != 0,
        jobs=sum(by_status.values()),
        by_status=by_status,
        oldest_created_at_ms=oldest,
        newest_created_at_ms=newest,
        hidden=_rows(db, "retention_tombstones"),
        tenants=_rows(db, "tenant_storage_usage"),
        most_charged=tuple(TenantCharge(*row) for row in db.execute(_TENANTS, (most,))),
        charged_bytes=_row(db, "SELECT charged_bytes FROM storage_usage_total")[0],
        retained_bytes=retained,
        reserved_bytes=reserved,
        attested=_rows(db, "job_attestations"),
        pending=pending,
        waived=waived,
        quarantined=_rows(db, "attestation_quarantine"),
        keys=_rows(db, "idempotency_keys"),
    )


def _row(db: apsw.Connection, statement: str) -> tuple[Any, ...]:
    return tuple(db.execute(statement).fetchone() or (0, 0))


def _rows(db: apsw.Connection, table: str) -> int:
    return int(db.execute(f"SELECT count(*) FROM {table}").get)  # noqa: S608  # names from above
