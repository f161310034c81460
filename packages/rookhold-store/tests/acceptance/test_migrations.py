"""S13 to S19, S27 and S28: old, damaged and foreign files at the open."""

import json
import logging
from pathlib import Path
from typing import Any

import apsw
import pytest

from rookhold_store import (
    DatabaseDamagedError,
    OpenRefusedError,
    RecoverRunning,
    Store,
    StoreError,
    Sweep,
    connection,
)
from rookhold_store.accounting import RESERVE_PENDING, findings, recount
from rookhold_store.schema import expected_objects, read_objects, schema_text
from rookhold_store.testing import Jobs, TickingClock, anything_binds, tampering_connection
from rookhold_store.testing.lineage import (
    insert,
    make_old,
    make_specimen,
    names_its_tenant,
)
from rookhold_store.testing.specimen import Made, binding, untyped

NOW = 9_000_000
SOUND = {"tenant": "acme", "language": "python", "spec_json": "{}", "created_at_ms": 1000}


def rows(path: Path, sql: str) -> list[Any]:
    db = apsw.Connection(str(path))
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


@pytest.fixture
def specimen(path: Path, request: pytest.FixtureRequest) -> Path:
    """A file as it would have grown up to a version."""
    make_specimen(path, request.param)
    return path


def version(number: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("specimen", [number], indirect=True, ids=[f"v{number}"])


@version(1)
def test_s13_a_fresh_file_and_one_migrated_from_0001_have_the_committed_schema(
    specimen: Path,
) -> None:
    fresh = specimen.with_name("fresh.db")
    committed = apsw.Connection(":memory:")
    committed.execute(schema_text())
    for path in (fresh, specimen):
        with Store.open(path) as store:
            assert read_objects(store._writer._db) == read_objects(committed)
            assert store._writer._db.pragma("user_version") == 4
        assert rows(path, "SELECT version FROM schema_migrations") == [(1,), (2,), (3,), (4,)]
    committed.close()


def test_s14_a_v1_file_opens_normalised_and_a_later_receipt_counts_what_is_legacy(
    path: Path,
) -> None:
    db = make_old(path, 1)
    insert(db, "jobs", **{**SOUND, "job_id": "tenant", "tenant": "  ", "status": "queued"})
    insert(db, "jobs", **{**SOUND, "job_id": "json", "spec_json": "{", "status": "queued"})
    times = {"created_at_ms": "then", "started_at_ms": "2024-01-01", "finished_at_ms": "now"}
    insert(db, "jobs", **{**SOUND, **times, "job_id": "times", "status": "failed"})
    ended = {"status": "failed", "finished_at_ms": 3000, "exit_code": 2**31}
    insert(db, "jobs", **{**SOUND, **ended, "job_id": "code"})
    under_way = {"status": "running", "started_at_ms": 2000}
    insert(db, "jobs", **{**SOUND, **under_way, "job_id": "under-way"})
    for seq, kind in enumerate(("accepted", "started", "stdout"), 1):
        data = '{"line":"4","eol":true}'
        insert(db, "events", job_id="under-way", seq=seq, ts_ms=seq, kind=kind, data_json=data)
    before = db.execute("SELECT job_id, seq, ts_ms, kind, data_json FROM events").fetchall()
    db.close()
    with Store.open(path, clock=lambda: NOW) as store:
        found = {
            row[0]: row[1:]
            for row in store._writer._db.execute(
                "SELECT job_id, tenant, spec_json, created_at_ms, started_at_ms, finished_at_ms,"
                " exit_code FROM jobs"
            )
        }
        assert found == {
            "tenant": ("__legacy_invalid__:tenant", "{}", 1000, None, None, None),
            "json": ("acme", '{"legacy_invalid_spec_json":"{"}', 1000, None, None, None),
            "times": ("acme", "{}", 0, None, NOW, None),
            "code": ("acme", "{}", 1000, None, 3000, None),
            "under-way": ("acme", "{}", 1000, 2000, None, None),
        }
        assert rows(path, "SELECT job_id, seq, ts_ms, kind, data_json FROM events") == before
        marks = "SELECT DISTINCT prev_hash, event_hash, hash_version FROM events"
        assert rows(path, marks) == [("", "", 0)]
        ending = store.call(RecoverRunning(job_id="under-way", now_ms=NOW))
        assert ending is not None
        assert (ending.event.prev_hash, ending.event.hash_version) == ("", 1)
        job = store.read.get("acme", "under-way")
        assert job is not None
        chain = json.loads(job.receipt_json or "")["event_chain"]
        assert chain["complete"] is False
        assert (chain["events"], chain["legacy_events"], chain["verified_events"]) == (4, 3, 1)


@version(2)
def test_s15_a_v2_file_gets_admitted_memory_and_covering_indexes_without_json(
    specimen: Path,
) -> None:
    with Store.open(specimen) as store:
        memory = dict(rows(specimen, "SELECT job_id, admitted_mem_mb FROM jobs"))
        assert memory["sound"] == 128  # as its spec says
        assert memory["spec-not-json"] == 256
        objects = read_objects(store._writer._db)
    indexes = {name: made.sql or "" for name, made in objects.items() if made.kind == "index"}
    covering = {
        *("jobs_by_id", "jobs_by_tenant", "jobs_by_tenant_status", "jobs_by_tenant_language"),
        "jobs_by_tenant_status_language",
    }
    assert covering <= indexes.keys()
    assert not any("_json" in sql for sql in indexes.values())


@version(3)
def test_s16_a_v3_files_terminal_jobs_wait_for_a_signature_with_20_mib_each(
    specimen: Path,
) -> None:
    before = dict(rows(specimen, "SELECT tenant, charged_bytes FROM tenant_storage_usage"))
    with Store.open(specimen) as store:
        db = store._writer._db
        waiting = {row.job_id for row in store.read.pending_attestations(NOW)}
        assert waiting == {"bound", "unbound", "pending", "waived"}
        held = rows(
            specimen, "SELECT job_id FROM job_storage_usage WHERE reserved_bytes = 20971520"
        )
        assert {job_id for (job_id,) in held} == waiting
        usage = recount(db)
        for tenant in ("acme", "globex"):
            charged = store.read.charged_bytes(tenant)
            mine = [job for job in usage.values() if job.tenant == tenant]
            assert charged == sum(job.retained_bytes + job.reserved_max for job in mine)
            assert charged - before[tenant] >= 2 * RESERVE_PENDING
        assert store.read.charged_bytes() == sum(
            job.retained_bytes + job.reserved_max for job in usage.values()
        )
        assert findings(db) == []


FORGET_HISTORY = (
    "DROP TRIGGER schema_migrations_no_delete",
    "DELETE FROM schema_migrations",
    expected_objects()["schema_migrations_no_delete"].sql or "",
)


@pytest.mark.parametrize(
    ("made", "statements", "code"),
    [
        (1, ("INSERT INTO schema_migrations VALUES (2, 0)", "PRAGMA user_version = 2"), "mismatch"),
        (4, FORGET_HISTORY, "history"),
        (4, ("PRAGMA user_version = 0",), "history"),
        (4, ("PRAGMA user_version = -1",), "version"),
        (4, ("PRAGMA user_version = 5",), "version"),
        (4, ("INSERT INTO schema_migrations VALUES (5, 0)", "PRAGMA user_version = 5"), "version"),
        (4, ("DROP TABLE job_attestations",), "mismatch"),
        (4, ("DROP TABLE attestation_outbox",), "mismatch"),
        (4, ("DROP TABLE attestation_quarantine",), "mismatch"),
        (4, ("DROP TABLE idempotency_keys",), "mismatch"),
        (3, ("DROP TABLE idempotency_keys",), "mismatch"),
        (0, ("CREATE TABLE jobs (id TEXT)", "CREATE TABLE _sqlx_migrations (v)"), "foreign_schema"),
        (
            0,
            (
                "CREATE TABLE schema_migrations (version INTEGER PRIMARY KEY,"
                " applied_at_ms INTEGER NOT NULL)",
                "INSERT INTO schema_migrations VALUES (1, 0)",
                "CREATE TABLE jobs (job_id TEXT PRIMARY KEY)",
                "PRAGMA user_version = 1",
            ),
            "foreign_schema",
        ),
    ],
    ids=lambda value: " ".join(value)[:50] if isinstance(value, tuple) else str(value),
)
def test_s17_a_file_that_is_not_what_it_claims_is_refused_with_a_code(
    path: Path, made: int, statements: tuple[str, ...], code: str
) -> None:
    if made:
        make_old(path, made).close()
    else:
        path.parent.mkdir(mode=0o700)
    db = apsw.Connection(str(path))
    for statement in statements:
        db.execute(statement)
    db.close()
    before = path.read_bytes()
    with pytest.raises(OpenRefusedError) as refused:
        Store.open(path, binding=anything_binds)
    assert refused.value.code in (code, f"schema_{code}")
    assert path.read_bytes() == before


def test_s17_governance_tables_open_with_their_history_and_not_without(path: Path) -> None:
    Store.open(path).close()
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE gov_runs (id TEXT PRIMARY KEY) STRICT")
    with pytest.raises(OpenRefusedError):
        Store.open(path)
    db.execute("CREATE TABLE gov_migrations (version INTEGER PRIMARY KEY, applied_at_ms INTEGER)")
    db.execute("INSERT INTO gov_migrations VALUES (1, 0)")
    assert db.pragma("user_version") == 4
    db.close()
    Store.open(path).close()


@version(1)
def test_s18_a_failed_commit_of_the_migration_leaves_history_and_version(
    specimen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens = connection.open_existing

    def failing(file: Path) -> apsw.Connection:
        db = opens(file)
        db.set_commit_hook(lambda: True)
        return db

    monkeypatch.setattr(connection, "open_existing", failing)
    before = specimen.read_bytes()
    with pytest.raises(StoreError):
        Store.open(specimen)
    assert rows(specimen, "SELECT version FROM schema_migrations") == [(1,)]
    assert rows(specimen, "PRAGMA user_version") == [(1,)]
    assert specimen.read_bytes() == before


@pytest.mark.parametrize(
    "altered",
    [
        (),
        ("CREATE TRIGGER jobs_identity BEFORE UPDATE ON jobs WHEN 0 BEGIN SELECT 1; END",),
    ],
    ids=["dropped", "weakened"],
)
def test_s19_a_trigger_is_restored_and_named_and_refuses_again(
    made: Made, caplog: pytest.LogCaptureFixture, altered: tuple[str, ...]
) -> None:
    db = apsw.Connection(str(made.path))
    for statement in ("DROP TRIGGER jobs_identity", *altered):
        db.execute(statement)
    db.close()
    with caplog.at_level(logging.WARNING), Store.open(made.path, binding=binding) as store:
        assert "jobs_identity" in caplog.text
        ordinary = tampering_connection(store.path)
        with pytest.raises(apsw.ConstraintError):
            ordinary.execute("UPDATE jobs SET tenant = 'other'")
        ordinary.close()


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("UPDATE jobs SET exit_code = 'nine' WHERE exit_code = 0", "jobs.exit_code"),
        ("UPDATE jobs SET spec_json = '{' WHERE status = 'queued'", "jobs.spec_json"),
        ("UPDATE jobs SET language = CAST(x'c3' AS TEXT)", "jobs.language"),
        ("UPDATE job_attestations SET result_artifact = x'00'", "job_attestations.result_"),
    ],
    ids=["type", "json", "utf8", "artifact"],
)
def test_s19_bad_data_written_meanwhile_refuses_and_names_table_and_column(
    made: Made, statement: str, place: str
) -> None:
    with untyped(made.path, "jobs") as db:
        db.execute(statement)
    db = apsw.Connection(str(made.path))
    db.execute("DROP TRIGGER events_no_update")
    db.close()
    with pytest.raises(DatabaseDamagedError) as refused:
        Store.open(made.path, binding=binding)
    assert place in str(refused.value)
    assert str(refused.value.detail["place"]).startswith(place)


@version(4)
def test_s27_a_revision_1_ledger_becomes_exact_once_and_all_of_it_goes_with_the_jobs(
    specimen: Path,
) -> None:
    keys = rows(specimen, "SELECT * FROM idempotency_keys")
    outbox = rows(specimen, "SELECT * FROM attestation_outbox ORDER BY job_id")
    with Store.open(specimen, binding=names_its_tenant, clock=TickingClock(NOW)) as store:
        db = store._writer._db
        assert findings(db) == []
        pending = {row.job_id for row in store.read.pending_attestations(NOW)}
        ledger = "SELECT job_id, retained_bytes, reserved_bytes FROM job_storage_usage"
        usage = recount(db)
        for job_id, retained, reserved in db.execute(ledger).fetchall():
            assert retained == usage[job_id].retained_bytes
            assert (reserved == RESERVE_PENDING) == (job_id in pending)
        assert rows(specimen, "SELECT * FROM idempotency_keys") == keys
        assert set(outbox) <= set(rows(specimen, "SELECT * FROM attestation_outbox"))
        assert rows(specimen, "SELECT accounting_revision FROM store_meta") == [(2,)]
    before = specimen.read_bytes()
    Store.open(specimen, binding=names_its_tenant).close()
    assert specimen.read_bytes() == before
    with Store.open(specimen, binding=names_its_tenant, clock=TickingClock(NOW)) as store:
        jobs = Jobs(store)
        for queued in store.read.queued_page():
            jobs.start(queued.job_id)
        for job_id in store.read.running_ids(100):
            jobs.finalise(job_id)
        while store.call(Sweep(now_ms=NOW * 100, age_ms=0)).jobs_deleted:
            pass
        assert store.read.charged_bytes() == 0
    assert rows(specimen, "SELECT * FROM tenant_storage_usage") == []
    assert rows(specimen, "SELECT * FROM job_storage_usage") == []


@version(4)
def test_s28_an_attestation_without_the_tenant_is_set_aside_charged_and_queued_once(
    specimen: Path,
) -> None:
    stored = "SELECT result_artifact, envelope_json FROM job_attestations WHERE job_id = 'unbound'"
    (before,) = rows(specimen, stored)
    for _ in range(2):
        with Store.open(specimen, binding=names_its_tenant) as store:
            aside = "SELECT result_artifact, envelope_json FROM attestation_quarantine"
            assert rows(specimen, aside) == [before]
            assert store.read.attestation(None, "unbound") is None
            assert store.read.outbox("unbound") is not None
            held = "SELECT reserved_bytes FROM job_storage_usage WHERE job_id = 'unbound'"
            assert rows(specimen, held) == [(RESERVE_PENDING,)]
            assert findings(store._writer._db) == []  # which charges the quarantine


@version(4)
def test_a2_an_unbound_attestation_is_not_advertised_and_new_bytes_take_its_place(
    specimen: Path,
) -> None:
    with Store.open(specimen, binding=names_its_tenant, clock=TickingClock(NOW)) as store:
        assert store.read.attestation_status("globex", "unbound") is None
        assert store.read.attestation("globex", "unbound") is None
        assert "unbound" in {row.job_id for row in store.read.pending_attestations(NOW)}
        store.call(Jobs(store).attestation("unbound", result_artifact=b"of tenant globex"))
        new = store.read.attestation("globex", "unbound")
        assert new is not None
        assert new.result_artifact == b"of tenant globex"
        bound = store.read.attestation("globex", "bound")
        assert bound is not None
        assert bound.result_artifact == b"tenant globex"
