"""What ordinary SQL cannot do to a store's file: the triggers, checks and keys of the schema."""

import re

import apsw
import pytest

from rookhold_store import Store
from rookhold_store.accounting import findings
from rookhold_store.schema import schema_text
from rookhold_store.testing import Jobs

HEX = "a" * 64
QUARANTINE = (
    f"INSERT INTO attestation_quarantine VALUES ('hidden', 1, 'r', '{HEX}', '{HEX}', x'00', x'00')"
)


@pytest.fixture
def one(store: Store, jobs: Jobs) -> str:
    """A finished job with a key and an attestation; beside it a running and a queued one."""
    job_id = jobs.finished(key="k")
    store.call(jobs.attestation(job_id))
    jobs.running(job_id="running")
    jobs.accept(job_id="queued")
    jobs.finished(job_id="listed")
    jobs.finished(job_id="hidden")
    return job_id


FORBIDDEN = [
    "UPDATE jobs SET job_id = 'x' WHERE job_id = :one",
    "UPDATE jobs SET tenant = 'globex' WHERE job_id = :one",
    "UPDATE jobs SET language = 'node' WHERE job_id = 'queued'",
    "UPDATE jobs SET spec_json = '{}' WHERE job_id = 'queued'",
    "UPDATE jobs SET created_at_ms = 0 WHERE job_id = 'queued'",
    "UPDATE jobs SET admitted_mem_mb = 4096 WHERE job_id = 'queued'",
    "UPDATE jobs SET status = 'failed' WHERE job_id = :one",
    "UPDATE jobs SET status = 'running' WHERE job_id = :one",
    "UPDATE jobs SET exit_code = 9 WHERE job_id = :one",
    "UPDATE jobs SET finished_at_ms = 9 WHERE job_id = :one",
    "UPDATE jobs SET effective_spec_json = '{}' WHERE job_id = :one",
    "UPDATE jobs SET receipt_json = '{}' WHERE job_id = :one",
    "UPDATE jobs SET receipt_json = NULL WHERE job_id = :one",
    "UPDATE jobs SET status = 'queued', started_at_ms = NULL WHERE job_id = 'running'",
    "UPDATE jobs SET started_at_ms = 1 WHERE job_id = 'running'",
    "UPDATE jobs SET status = 'running' WHERE job_id = 'queued'",
    "UPDATE jobs SET status = 'gone', finished_at_ms = 1 WHERE job_id = 'queued'",
    "UPDATE jobs SET status = 'error' WHERE job_id = 'running'",
    "UPDATE jobs SET finished_at_ms = 5 WHERE job_id = 'running'",
    "UPDATE jobs SET status = 'error', finished_at_ms = 'noon' WHERE job_id = 'running'",
    "UPDATE jobs SET status = 'error', finished_at_ms = 1.5 WHERE job_id = 'running'",
    "UPDATE jobs SET status = 'error', finished_at_ms = -1 WHERE job_id = 'running'",
    "UPDATE jobs SET status = 'error', finished_at_ms = 1, exit_code = 2147483648 "
    "WHERE job_id = 'running'",
    "UPDATE jobs SET status = 'error', finished_at_ms = 1, exit_code = -2147483649 "
    "WHERE job_id = 'running'",
    "UPDATE jobs SET status = 'error', finished_at_ms = 1, receipt_json = '{' "
    "WHERE job_id = 'running'",
    "UPDATE jobs SET effective_spec_json = 'nonsense' WHERE job_id = 'running'",
    "DELETE FROM jobs WHERE job_id = 'running'",
    "DELETE FROM jobs WHERE job_id = 'queued'",
    "INSERT OR REPLACE INTO jobs (job_id, tenant, language, admitted_mem_mb, created_at_ms, "
    "spec_json) VALUES (:one, 'acme', 'python', 256, 1, '{}')",
    "INSERT INTO jobs (job_id, tenant, language, admitted_mem_mb, created_at_ms, spec_json) "
    "VALUES ('new', '  ', 'python', 256, 1, '{}')",
    "INSERT INTO jobs (job_id, tenant, language, admitted_mem_mb, created_at_ms, spec_json) "
    "VALUES ('new', 'acme', char(9, 10), 256, 1, '{}')",
    "INSERT INTO jobs (job_id, tenant, language, admitted_mem_mb, created_at_ms, spec_json) "
    "VALUES ('new', 'acme', 'python', 15, 1, '{}')",
    "INSERT INTO jobs (job_id, tenant, language, admitted_mem_mb, created_at_ms, spec_json) "
    "VALUES ('new', 'acme', 'python', 256, 1, 'no json')",
    "INSERT INTO jobs (job_id, tenant, language, admitted_mem_mb, created_at_ms, spec_json) "
    "VALUES ('new', 'acme', 'python', 256, 1, x'7b7d')",
    "UPDATE events SET data_json = '{}' WHERE job_id = :one",
    "UPDATE events SET seq = 9 WHERE job_id = :one AND seq = 4",
    "DELETE FROM events WHERE job_id = :one AND seq = 4",
    "DELETE FROM events WHERE job_id = 'running'",
    "INSERT INTO events SELECT job_id, 5, ts_ms, kind, data_json, event_hash, event_hash, 1 "
    "FROM events WHERE job_id = :one AND seq = 4",
    "INSERT INTO events SELECT job_id, 0, ts_ms, kind, data_json, '', event_hash, 1 "
    "FROM events WHERE job_id = 'running' AND seq = 2",
    "INSERT INTO events SELECT job_id, 2, ts_ms, kind, data_json, event_hash, event_hash, 1 "
    "FROM events WHERE job_id = 'running' AND seq = 2",
    "INSERT OR REPLACE INTO events SELECT * FROM events WHERE job_id = 'running' AND seq = 2",
    "INSERT INTO events SELECT job_id, 4, ts_ms, kind, data_json, event_hash, event_hash, 1 "
    "FROM events WHERE job_id = 'running' AND seq = 2",
    "INSERT INTO events SELECT job_id, 3, ts_ms, kind, data_json, prev_hash, event_hash, 1 "
    "FROM events WHERE job_id = 'running' AND seq = 2",
    "INSERT INTO events SELECT job_id, 3, ts_ms, kind, data_json, '', '', 0 "
    "FROM events WHERE job_id = 'running' AND seq = 2",
    "INSERT INTO events SELECT job_id, 3, ts_ms, kind, data_json, event_hash, 'short', 1 "
    "FROM events WHERE job_id = 'running' AND seq = 2",
    "INSERT INTO events SELECT job_id, 3, ts_ms, kind, data_json, event_hash, event_hash, 2 "
    "FROM events WHERE job_id = 'running' AND seq = 2",
    "INSERT INTO events SELECT job_id, 3, ts_ms, ' ', data_json, event_hash, event_hash, 1 "
    "FROM events WHERE job_id = 'running' AND seq = 2",
    "INSERT INTO events SELECT job_id, 3, ts_ms, kind, '{', event_hash, event_hash, 1 "
    "FROM events WHERE job_id = 'running' AND seq = 2",
    f"INSERT INTO events VALUES ('nobody', 1, 1, 'stdout', '{{}}', '', '{HEX}', 1)",
    "UPDATE job_attestations SET key_id = 'x'",
    "UPDATE job_attestations SET envelope_json = x'00'",
    "DELETE FROM job_attestations",
    "INSERT OR REPLACE INTO job_attestations SELECT * FROM job_attestations",
    "INSERT INTO job_attestations SELECT 'listed', created_at_ms, key_id, receipt_sha256, "
    "result_media_type, result_sha256, envelope_sha256, result_artifact, envelope_json "
    "FROM job_attestations",
    "INSERT INTO job_attestations SELECT 'running', created_at_ms, key_id, receipt_sha256, "
    "result_media_type, result_sha256, envelope_sha256, result_artifact, envelope_json "
    "FROM job_attestations",
    f"INSERT INTO attestation_quarantine VALUES ('nobody', 1, 'r', '{HEX}', '{HEX}', x'00', x'00')",
    f"INSERT INTO attestation_quarantine VALUES (:one, 1, ' ', '{HEX}', '{HEX}', x'00', x'00')",
    f"INSERT INTO attestation_quarantine VALUES (:one, 1, 'r', '{HEX[1:]}', '{HEX}', x'00', x'00')",
    "INSERT INTO attestation_quarantine "
    f"VALUES (:one, 1, 'r', upper('{HEX}'), '{HEX}', x'00', x'00')",
    f"INSERT INTO attestation_quarantine VALUES (:one, 1, 'r', '{HEX}', '{HEX}', x'', x'00')",
    "INSERT INTO attestation_outbox VALUES (:one, 1, 0, 1, NULL, NULL, NULL)",
    "INSERT INTO attestation_outbox VALUES ('running', 1, 0, 1, NULL, NULL, NULL)",
    "INSERT OR REPLACE INTO attestation_outbox VALUES ('listed', 1, 0, 1, NULL, NULL, NULL)",
    "UPDATE attestation_outbox SET pending_since_ms = 1",
    "UPDATE attestation_outbox SET attempt_count = -1",
    "UPDATE attestation_outbox SET failed_at_ms = 1",
    "UPDATE attestation_outbox SET failed_at_ms = 1, failure_code = 'c'",
    "UPDATE attestation_outbox SET failed_at_ms = 1, failure_code = ' ', failure_profile = '1'",
    "UPDATE idempotency_keys SET request_sha256 = '" + HEX + "'",
    "UPDATE idempotency_keys SET job_id = 'queued'",
    "DELETE FROM idempotency_keys",
    "INSERT OR REPLACE INTO idempotency_keys SELECT * FROM idempotency_keys",
    f"INSERT INTO idempotency_keys VALUES ('globex', 'k', '{HEX}', :one, 1)",
    f"INSERT INTO idempotency_keys VALUES ('acme', '', '{HEX}', :one, 1)",
    "UPDATE job_storage_usage SET tenant = 'globex'",
    "UPDATE job_storage_usage SET requested_mem_mb = 16",
    "UPDATE job_storage_usage SET retained_bytes = -1",
    "DELETE FROM job_storage_usage",
    "INSERT OR REPLACE INTO job_storage_usage SELECT * FROM job_storage_usage",
    "INSERT INTO retention_tombstones VALUES ('running', 1)",
    "INSERT INTO retention_tombstones VALUES ('nobody', 1)",
    "INSERT INTO job_storage_usage VALUES ('bare', 'acme', 1, 1, 128)",
    "INSERT INTO job_storage_usage VALUES ('bare', 'globex', 1, 1, 256)",
    "INSERT INTO retention_tombstones VALUES ('hidden', 2)",
    "UPDATE retention_tombstones SET marked_at_ms = 2",
    "DELETE FROM retention_tombstones",
    "UPDATE attestation_quarantine SET reason = 'x'",
    "DELETE FROM attestation_quarantine",
    QUARANTINE.replace("INSERT", "INSERT OR REPLACE"),
    "DELETE FROM storage_usage_total",
    "INSERT INTO storage_usage_total VALUES (2, 0)",
    "DELETE FROM store_meta",
    "INSERT INTO store_meta VALUES (2, 2)",
    "UPDATE store_meta SET accounting_revision = 1",
    "UPDATE store_meta SET accounting_revision = 3",
    "DELETE FROM schema_migrations",
    "UPDATE schema_migrations SET applied_at_ms = 0",
    "INSERT INTO schema_migrations VALUES (6, 0)",
]


def contents(db: apsw.Connection) -> list[object]:
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return [db.execute(f"SELECT * FROM {table}").fetchall() for table in sorted(tables)]


def test_every_forbidden_edit_is_refused_and_changes_nothing(
    store: Store, one: str, raw: apsw.Connection
) -> None:
    raw.execute("INSERT INTO retention_tombstones VALUES ('hidden', 1)")
    raw.execute(QUARANTINE)
    raw.execute(
        "INSERT INTO jobs (job_id, tenant, language, admitted_mem_mb, created_at_ms, spec_json) "
        "VALUES ('bare', 'acme', 'python', 256, 1, '{}')"
    )
    before = contents(raw)
    reasons: set[str] = set()
    for recursive in ("ON", "OFF"):
        raw.execute(f"PRAGMA recursive_triggers = {recursive}")
        for statement in FORBIDDEN:
            try:
                raw.execute(statement, {"one": one} if ":one" in statement else None)
            except apsw.ConstraintError as refusal:
                reasons.add(str(refusal).removeprefix("ConstraintError: "))
                continue
            pytest.fail(f"was not refused: {statement}")
    assert contents(raw) == before
    rules = set(re.findall(r"RAISE\(ABORT, '([^']+)'\)", schema_text()))
    assert rules - reasons == set(), "rules that no edit above has shown at work"


def test_a_terminal_job_is_deleted_with_everything_that_hangs_on_it(
    store: Store, one: str, raw: apsw.Connection
) -> None:
    raw.execute(
        f"INSERT INTO attestation_quarantine VALUES (?, 1, 'r', '{HEX}', '{HEX}', x'00', x'00')",
        (one,),
    )
    for job_id in (one, "listed", "hidden"):
        raw.execute("DELETE FROM jobs WHERE job_id = ?", (job_id,))
    for table in ("events", "job_attestations", "attestation_outbox", "attestation_quarantine"):
        ids = {row[0] for row in raw.execute(f"SELECT job_id FROM {table}")}
        assert ids <= {"running", "queued"}, table
    assert store.read.find_key("acme", "k") is None
    assert findings(raw) == []


def test_deleting_every_job_brings_all_charges_to_nothing(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    for tenant in ("acme", "globex"):
        store.call(jobs.attestation(jobs.finished(tenant=tenant, key="k")))
        jobs.finished(tenant=tenant)
    raw.execute("DELETE FROM jobs")
    assert store.read.charged_bytes() == 0
    assert raw.execute("SELECT count(*) FROM tenant_storage_usage").get == 0
    assert raw.execute("SELECT count(*) FROM job_storage_usage").get == 0


def test_under_a_tombstone_history_key_and_receipt_may_go(
    store: Store, one: str, raw: apsw.Connection
) -> None:
    raw.execute("INSERT INTO retention_tombstones VALUES (?, 1)", (one,))
    raw.execute("DELETE FROM events WHERE job_id = ? AND seq > 2", (one,))
    raw.execute("DELETE FROM idempotency_keys WHERE job_id = ?", (one,))
    raw.execute("UPDATE jobs SET receipt_json = NULL WHERE job_id = ?", (one,))
    with pytest.raises(apsw.ConstraintError):
        raw.execute("DELETE FROM retention_tombstones")
    with pytest.raises(apsw.ConstraintError):
        raw.execute("UPDATE retention_tombstones SET marked_at_ms = 2")
    raw.execute("DELETE FROM jobs WHERE job_id = ?", (one,))
    assert raw.execute("SELECT count(*) FROM retention_tombstones").get == 0


def test_an_attestation_moves_to_the_quarantine_and_nowhere_else(
    store: Store, one: str, raw: apsw.Connection
) -> None:
    with pytest.raises(apsw.ConstraintError):
        raw.execute("DELETE FROM job_attestations WHERE job_id = ?", (one,))
    raw.execute(
        "INSERT INTO attestation_quarantine SELECT job_id, 1, 'unbound', result_sha256, "
        "envelope_sha256, result_artifact, envelope_json FROM job_attestations"
    )
    raw.execute("DELETE FROM job_attestations WHERE job_id = ?", (one,))
    with pytest.raises(apsw.ConstraintError):
        raw.execute("UPDATE attestation_quarantine SET reason = 'x'")
    with pytest.raises(apsw.ConstraintError):
        raw.execute("DELETE FROM attestation_quarantine")
    assert store.read.attestation("acme", one) is None
