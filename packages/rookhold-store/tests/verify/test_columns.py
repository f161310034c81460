"""Whatever column somebody edits past the triggers, the verification names it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from rookhold_store.schema import schema_text
from rookhold_store.testing import Jobs, tampering_connection
from rookhold_store.testing.specimen import Made, binding, unguarded, untyped
from rookhold_store.verify import Finding, tables, unproved, verify
from rookhold_store.verify.tables import TABLES

if TYPE_CHECKING:
    from rookhold_store import Store

# For each column a value that is as good as the true one, as far as the schema can tell.
GOOD: dict[str, Any] = {
    "jobs.job_id": "another",
    "jobs.tenant": "acmf",
    "jobs.language": "pythom",
    "jobs.status": "failed",
    "jobs.admitted_mem_mb": 255,
    "jobs.created_at_ms": 77,
    "jobs.started_at_ms": 77,
    "jobs.finished_at_ms": 77,
    "jobs.exit_code": 1,
    "jobs.spec_json": "{}",
    "jobs.effective_spec_json": "{}",
    "jobs.receipt_json": '{"event_chain":{},"receipt_sha256":"0"}',
    "events.job_id": "another",
    "events.seq": 99,
    "events.ts_ms": 77,
    "events.kind": "stderr",
    "events.data_json": '{"eol":true,"line":"xxx"}',
    "events.prev_hash": "0" * 64,
    "events.event_hash": "0" * 64,
    "events.hash_version": 0,
    "job_attestations.job_id": "another",
    "job_attestations.created_at_ms": 77,
    "job_attestations.key_id": "key-2",
    "job_attestations.receipt_sha256": "0" * 64,
    "job_attestations.result_media_type": "application/jsom",
    "job_attestations.result_sha256": "0" * 64,
    "job_attestations.envelope_sha256": "0" * 64,
    "job_attestations.result_artifact": b"x",
    "job_attestations.envelope_json": b"x",
    "attestation_quarantine.job_id": "another",
    "attestation_quarantine.at_ms": 77,
    "attestation_quarantine.reason": "unbounc",
    "attestation_quarantine.result_sha256": "0" * 64,
    "attestation_quarantine.envelope_sha256": "0" * 64,
    "attestation_quarantine.result_artifact": b"x",
    "attestation_quarantine.envelope_json": b"x",
    "attestation_outbox.job_id": "another",
    "attestation_outbox.pending_since_ms": 77,
    "attestation_outbox.attempt_count": 3,
    "attestation_outbox.next_attempt_ms": 77,
    "attestation_outbox.failed_at_ms": 77,
    "attestation_outbox.failure_code": "too_largf",
    "attestation_outbox.failure_profile": "2",
    "idempotency_keys.tenant": "acmf",
    "idempotency_keys.idempotency_key": "fisrt",
    "idempotency_keys.request_sha256": "0" * 64,
    "idempotency_keys.job_id": "another",
    "idempotency_keys.created_at_ms": 77,
    "job_storage_usage.job_id": "another",
    "job_storage_usage.tenant": "acmf",
    "job_storage_usage.retained_bytes": 77,
    "job_storage_usage.reserved_bytes": 77,
    "job_storage_usage.requested_mem_mb": 255,
    "retention_tombstones.job_id": "another",
    "retention_tombstones.marked_at_ms": 77,
    "tenant_storage_usage.tenant": "acmf",
    "tenant_storage_usage.charged_bytes": 77,
    "storage_usage_total.id": 2,
    "storage_usage_total.charged_bytes": 77,
    "store_meta.id": 2,
    "store_meta.accounting_revision": 1,
    "schema_migrations.version": 5,
    "schema_migrations.applied_at_ms": 77,
}
# Which row is edited, where it is not the only one.
ROW = {
    "jobs": "job_id = :attested",
    "events": "job_id = :attested AND seq = 4",
    "attestation_outbox": "job_id = :waived",
    "idempotency_keys": "idempotency_key = 'first'",
    "job_storage_usage": "job_id = :attested",
    "tenant_storage_usage": "tenant = 'acme'",
    "schema_migrations": "version = 4",
}
COLUMNS = [(table.name, column) for table in TABLES for column in table.columns]
NAMED = [f"{table}.{column.name}" for table, column in COLUMNS]


def edit(db: Any, made: Made, place: str, value: str, bound: Any = None) -> None:
    table, _, column = place.partition(".")
    where = ROW.get(table, "true")
    db.execute(
        f"UPDATE {table} SET {column} = {value} WHERE {where}",
        {"value": bound, "attested": made.attested, "waived": made.waived},
    )
    assert db.changes() == 1


def found(made: Made) -> list[Finding]:
    return list(verify(made.path, binding=binding))


def names(findings: list[Finding], place: str) -> bool:
    """Whether one names the column, or the digest that covers it and the column with it."""
    table, _, column = place.partition(".")
    return any(
        item.place == place
        or place in item.problem
        or (item.place.startswith(f"{table}.") and column in item.problem.replace(",", "").split())
        for item in findings
    )


def test_the_file_is_sound_before_anybody_edits_it(made: Made) -> None:
    assert found(made) == []


def test_every_column_of_the_schema_has_its_rules_here() -> None:
    stated = schema_text()
    for table in TABLES:
        body = stated.partition(f"CREATE TABLE {table.name} (")[2].partition("\n)")[0]
        lines = [line.split()[0] for line in body.splitlines() if line.startswith("  ")]
        keywords = {"UNIQUE", "CHECK", "PRIMARY", "FOREIGN", "WHEN", "ELSE", "AND", "OR"}
        columns = [word for word in lines if word.islower() and word not in keywords]
        assert set(columns) >= {column.name for column in table.columns}
    assert list(dict.fromkeys(NAMED)) == NAMED
    assert set(NAMED) == set(GOOD)
    assert set(GOOD) > unproved.UNBOUND
    assert stated.count("CREATE TABLE ") == len(TABLES)


@pytest.mark.parametrize("place", [name for name in NAMED if name not in unproved.UNBOUND])
def test_another_good_value_is_found(made: Made, place: str) -> None:
    with unguarded(made.path) as db:
        edit(db, made, place, ":value", GOOD[place])
    findings = found(made)
    assert names(findings, place)
    if place.startswith(("jobs.", "events.")) and not place.endswith("job_id"):
        assert made.attested in {item.job_id for item in findings}
    if place.startswith("events.") and place not in ("events.job_id", "events.seq"):
        assert next(item for item in findings if item.seq is not None).seq == 4


@pytest.mark.parametrize("place", sorted(unproved.UNBOUND))
def test_what_is_said_to_leave_no_trace_leaves_none(made: Made, place: str) -> None:
    with unguarded(made.path) as db:
        edit(db, made, place, ":value", GOOD[place])
    assert found(made) == []


@pytest.mark.parametrize("place", NAMED)
def test_a_value_of_another_type_is_found(made: Made, place: str) -> None:
    table = place.partition(".")[0]
    kind = next(item.type for name, item in COLUMNS if f"{name}.{item.name}" == place)
    if place in ("storage_usage_total.id", "store_meta.id", "schema_migrations.version"):
        return  # an alias of the rowid holds integers in any table
    with untyped(made.path, table) as db:
        edit(db, made, place, "'text'" if kind is bytes else "x'ff00'")
    findings = found(made)
    assert names(findings, place)
    assert any("text" in item.problem or "blob" in item.problem for item in findings)


@pytest.mark.parametrize("place", [name for name in NAMED if isinstance(GOOD[name], str)])
def test_a_text_that_is_not_utf8_is_found(made: Made, place: str) -> None:
    with unguarded(made.path) as db:
        edit(db, made, place, "CAST(x'61ff62' AS TEXT)")
    findings = found(made)
    assert names(findings, place)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        *((name, "' '") for name in NAMED if name.endswith(("tenant", "language", "kind"))),
        *((name, "-1") for name in NAMED if name.endswith(("_ms", "_bytes", "_count"))),
        *((name, "'xyz'") for name in NAMED if name.endswith(("sha256", "_hash"))),
        *((name, "'{'") for name in NAMED if name.endswith("_json") and "envelope" not in name),
        ("jobs.status", "'done'"),
        ("jobs.admitted_mem_mb", "15"),
        ("jobs.admitted_mem_mb", "4097"),
        ("jobs.exit_code", "2147483648"),
        ("jobs.finished_at_ms", "NULL"),
        ("events.hash_version", "2"),
        ("events.seq", "0"),
        ("idempotency_keys.idempotency_key", "'a b'"),
        ("job_attestations.result_artifact", "x''"),
        ("attestation_outbox.failure_code", "NULL"),
        ("attestation_outbox.failure_profile", "NULL"),
        ("store_meta.accounting_revision", "3"),
    ],
)
def test_a_value_that_a_check_refuses_is_found(made: Made, place: str, value: str) -> None:
    with unguarded(made.path) as db:
        edit(db, made, place, value)
    assert names(found(made), place)


def test_a_sound_job_beside_a_damaged_one_is_not_named(made: Made) -> None:
    with unguarded(made.path) as db:
        edit(db, made, "events.data_json", ":value", GOOD["events.data_json"])
    assert {item.job_id for item in found(made)} == {made.attested}


def test_rules_and_schema_agree_on_what_may_be_null() -> None:
    stated = schema_text()
    for table, column in COLUMNS:
        body = stated.partition(f"CREATE TABLE {table} (")[2].partition("\n)")[0]
        line = next(item for item in body.splitlines() if item.startswith(f"  {column.name} "))
        allowed = " NOT NULL" not in line and "INTEGER PRIMARY KEY" not in line
        assert column.null is allowed, (table, column.name)


def test_every_status_of_the_schema_is_one_here() -> None:
    assert all(tables.JOBS.columns[3].rule(status) is None for status in ("queued", "oom_killed"))  # type: ignore[misc]


def test_a_history_that_is_all_wrong_is_not_listed_whole(store: Store) -> None:
    jobs = Jobs(store)
    job_id = jobs.running()
    jobs.append(job_id, *map(str, range(200)))
    with unguarded(store.path) as db:
        db.execute("UPDATE events SET ts_ms = 1")
    findings = [item for item in verify(store.path, binding=binding) if item.place[:6] == "events"]
    assert len(findings) == 101
    assert findings[-1].problem == "has more findings"


def test_job_ids_that_are_no_texts_are_found(made: Made) -> None:
    for table in ("jobs", "events", "job_storage_usage"):
        with untyped(made.path, table) as db:
            db.execute(
                f"UPDATE {table} SET job_id = CAST(job_id AS BLOB) WHERE job_id = ?", (made.waived,)
            )
    places = {item.place for item in found(made)}
    assert {"jobs.job_id", "events.job_id", "job_storage_usage.job_id"} <= places


def test_a_whole_job_that_was_hidden_is_found(store: Store) -> None:
    job_id = Jobs(store).finished(key="k")
    with closing(tampering_connection(store.path)) as db:  # no rule of the schema is in the way
        db.execute("INSERT INTO retention_tombstones VALUES (?, 5)", (job_id,))
    assert store.read.get(None, job_id) is None
    assert [item.place for item in verify(store.path, binding=binding)] == [
        "retention_tombstones.job_id",
        "idempotency_keys.job_id",
    ]


def test_an_exit_code_of_a_job_that_has_not_ended_is_found(made: Made) -> None:
    with unguarded(made.path) as db:
        db.execute("UPDATE jobs SET exit_code = 0 WHERE finished_at_ms IS NULL")
    unfinished = {made.running, made.queued}
    assert {(item.job_id, item.place) for item in found(made)} == {
        (job_id, "jobs.exit_code") for job_id in unfinished
    }


def test_a_start_is_what_its_event_says_also_while_the_job_is_removed(made: Made) -> None:
    with unguarded(made.path) as db:
        db.execute(
            "UPDATE jobs SET started_at_ms = started_at_ms + 1 WHERE job_id = ?", (made.hidden,)
        )
    assert [item.place for item in found(made)] == ["jobs.started_at_ms"]


def test_a_job_beside_a_quarantined_attestation_waits_since_it_finished(made: Made) -> None:
    with unguarded(made.path) as db:
        db.execute(
            "UPDATE attestation_outbox SET pending_since_ms = 5 WHERE job_id = ?",
            (made.quarantined,),
        )
    assert [item.place for item in found(made)] == ["attestation_outbox.pending_since_ms"]
