"""Files of older schema versions for tests, made from the texts of those versions."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import apsw

from rookhold_store.schema.fresh import record
from rookhold_store.schema.objects import expected_objects, read_objects, run_steps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_COPIED: Final = (
    *("jobs", "events", "retention_tombstones", "idempotency_keys", "job_attestations"),
    *("attestation_outbox", "attestation_quarantine"),
)
# What revision 1 charged: rows of jobs, events and attestations; nothing was held for a signature.
_LEDGER_OF_REVISION_1: Final = """
INSERT INTO job_storage_usage (job_id, tenant, retained_bytes, reserved_bytes, requested_mem_mb)
SELECT job_id, tenant, octet_length(spec_json), iif(finished_at_ms IS NULL, 33554432, 0),
  admitted_mem_mb FROM jobs;
INSERT INTO tenant_storage_usage (tenant, charged_bytes)
SELECT tenant, sum(retained_bytes + reserved_bytes) FROM job_storage_usage GROUP BY tenant;
UPDATE storage_usage_total
SET charged_bytes = (SELECT coalesce(sum(charged_bytes), 0) FROM tenant_storage_usage);
"""


def make_old(path: Path, version: int, *, auto_vacuum: str = "INCREMENTAL") -> apsw.Connection:
    """Make an empty file of a version, of accounting revision 1 where it has one, and open it.

    Its rules are in force; `unruled` lifts them.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    db = apsw.Connection(str(path))
    db.pragma("auto_vacuum", auto_vacuum)
    db.pragma("journal_mode", "wal")
    with db:
        run_steps(db, range(1, version + 1), now_ms=0)
        record(db, range(1, version + 1), 0)
    return db


@contextmanager
def unruled(db: apsw.Connection, version: int) -> Iterator[None]:
    """Lift the triggers of a version, for rows that no program of it would write in this order."""
    triggers = {
        name: made for name, made in expected_objects(version).items() if made.kind == "trigger"
    }
    with db:
        for name in triggers:
            db.execute(f"DROP TRIGGER {name}")
        yield
        for made in triggers.values():
            db.execute(made.sql or "")


def insert(db: apsw.Connection, table: str, **values: Any) -> None:
    """Insert one row; names are the test's own."""
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    db.execute(
        f"INSERT INTO {table} ({names}) VALUES ({marks})",  # noqa: S608  # names are not data
        tuple(values.values()),
    )


def copy_down(db: apsw.Connection, version: int, source: Path) -> None:
    """Fill an empty file of a version with what it has room for of a closed store's rows."""
    db.execute("ATTACH ? AS source", (str(source),))
    try:
        with unruled(db, version):
            tables = read_objects(db)
            for table in (name for name in _COPIED if name in tables):
                names = ", ".join(
                    row[1] for row in db.execute(f"PRAGMA main.table_info({table})").fetchall()
                )
                db.execute(
                    f"INSERT INTO main.{table} ({names}) SELECT {names} FROM source.{table}"  # noqa: S608
                )
            if "job_storage_usage" in tables:
                db.execute(_LEDGER_OF_REVISION_1)
    finally:
        db.execute("DETACH source")
