"""Files of older schema versions for tests, made from the texts of those versions."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import apsw

from rookhold_store.operations import FailAttestation
from rookhold_store.schema.fresh import record
from rookhold_store.schema.objects import expected_objects, read_objects, run_steps
from rookhold_store.store import Store
from rookhold_store.testing import Jobs, TickingClock, anything_binds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_COPIED: Final = (
    *("jobs", "events", "retention_tombstones", "idempotency_keys", "job_attestations"),
    *("attestation_outbox", "attestation_quarantine"),
)
# What revision 1 charged: rows of jobs, events and attestations; nothing was held for a signature.
_LEDGER_OF_REVISION_1: Final = """
DELETE FROM job_storage_usage;
DELETE FROM tenant_storage_usage;
INSERT INTO job_storage_usage (job_id, tenant, retained_bytes, reserved_bytes, requested_mem_mb)
SELECT job_id, tenant, octet_length(spec_json), iif(finished_at_ms IS NULL, 33554432, 0),
  admitted_mem_mb FROM jobs;
INSERT INTO tenant_storage_usage (tenant, charged_bytes)
SELECT tenant, sum(retained_bytes + reserved_bytes) FROM job_storage_usage GROUP BY tenant;
UPDATE storage_usage_total
SET charged_bytes = (SELECT coalesce(sum(charged_bytes), 0) FROM tenant_storage_usage);
"""


def make_old(
    path: Path, version: int, *, auto_vacuum: str = "INCREMENTAL", page_size: int = 4096
) -> apsw.Connection:
    """Make an empty file of a version, of accounting revision 1 where it has one, and open it.

    Its rules are in force; `unruled` lifts them.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    db = apsw.Connection(str(path))
    db.pragma("page_size", page_size)
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
                    str(row[1]) for row in db.execute(f"PRAGMA main.table_info({table})").fetchall()
                )
                db.execute(
                    f"INSERT INTO main.{table} ({names}) SELECT {names} FROM source.{table}"  # noqa: S608
                )
            if "job_storage_usage" in tables:
                db.execute(_LEDGER_OF_REVISION_1)
    finally:
        db.execute("DETACH source")


# Rows of version 1 as they should not be, each under an id that says what is wrong.
_AWKWARD_JOBS: Final[dict[str, dict[str, Any]]] = {
    "sound": {},
    "blank-tenant": {"tenant": " \t"},
    "blob-tenant": {"tenant": b"acme"},
    "blank-language": {"language": ""},
    "unknown-status": {"status": "exploded", "finished_at_ms": None},
    "spec-not-json": {"spec_json": "print(1)"},
    "spec-blob": {"spec_json": b"\x00\xff"},
    "text-times": {"created_at_ms": "yesterday", "started_at_ms": "noon", "finished_at_ms": "late"},
    "exit-code-beyond": {"exit_code": 2**31},
    "running": {"status": "running", "started_at_ms": None, "finished_at_ms": None},
    "queued": {"status": "queued", "finished_at_ms": 5},
}
_AWKWARD_EVENTS: Final[tuple[tuple[Any, ...], ...]] = (
    ("sound", 1, 1000, "accepted", '{"status":"queued"}'),
    ("sound", 2, "noon", " ", "not JSON"),
    ("sound", 3, 3000, "finished", b"\x01"),
    ("running", 1, None, "accepted", '{"status":"queued"}'),
    ("queued", 1, 1000, "accepted", '{ "status" : "queued" }'),
)


def make_specimen(path: Path, version: int) -> None:
    """Make a file as it would have grown up to a version: the same rows whenever it is made.

    Version 4 is of accounting revision 1 and has an attestation that does not name its tenant.
    """
    db = make_old(path, 1, page_size=512)
    with db:
        for job_id, changes in _AWKWARD_JOBS.items():
            insert(db, "jobs", job_id=job_id, **{**_SOUND, **changes})
        db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", _AWKWARD_EVENTS)
    if version > 1:
        newer = path.with_name("newer.db")
        _make_newer(newer)
        with db:
            run_steps(db, range(2, version + 1), now_ms=0)
            record(db, range(2, version + 1), 1000)
        copy_down(db, version, newer)
        newer.unlink()
        db.execute("PRAGMA incremental_vacuum")
    db.close()


_SOUND: Final[dict[str, Any]] = {
    "tenant": "acme",
    "language": "python",
    "status": "succeeded",
    "spec_json": '{"language":"python","limits":{"mem_mb":128}}',
    "created_at_ms": 1000,
    "started_at_ms": 2000,
    "finished_at_ms": 3000,
    "exit_code": 0,
}


def _make_newer(path: Path) -> None:
    with Store.open(path, binding=anything_binds, clock=TickingClock()) as store:
        jobs = Jobs(store)
        for job_id in ("bound", "unbound"):
            jobs.finished(job_id=job_id, tenant="globex")
            named = b"tenant globex" if job_id == "bound" else b"no tenant"
            store.call(jobs.attestation(job_id, result_artifact=named))
        jobs.finished(job_id="pending", key="kept")
        jobs.finished(job_id="waived")
        now = store.clock()
        store.call(FailAttestation(job_id="waived", code="too_large", profile="1", now_ms=now))
        jobs.append(jobs.running(job_id="under-way"), "half")
        jobs.accept(job_id="waiting", key="waits")


def names_its_tenant(*, artifact: bytes, tenant: str, **_: object) -> bool:
    """The binding test that the specimen's attestations are made for."""
    return tenant.encode() in artifact
