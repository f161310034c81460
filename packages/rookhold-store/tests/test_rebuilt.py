"""Indexes and triggers that are missing or altered are made anew, and then nothing is trusted."""

import logging
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from rookhold_store import DatabaseDamagedError, RecordRefusedError, Store
from rookhold_store.connection import as_ours
from rookhold_store.schema import expected_objects, read_objects
from rookhold_store.testing import Jobs, anything_binds, tampering_connection
from rookhold_store.testing.lineage import copy_down, make_old
from rookhold_store.testing.specimen import Made, binding, unguarded, untyped

REBUILT = sorted(
    name for name, made in expected_objects().items() if made.kind in ("index", "trigger")
)


def edit(path: Path, *statements: str) -> None:
    db = apsw.Connection(str(path))
    for statement in statements:
        db.execute(statement)
    db.close()


@pytest.fixture
def finished(path: Path) -> Path:
    """A closed file with a signed, a finished and a running job."""
    with Store.open(path, binding=anything_binds) as store:
        jobs = Jobs(store)
        store.call(jobs.attestation(jobs.finished(key="k")))
        jobs.finished()
        jobs.running()
    return path


def test_everything_that_was_dropped_at_once_is_made_anew(
    finished: Path, caplog: pytest.LogCaptureFixture
) -> None:
    edit(finished, *(f"DROP {expected_objects()[name].kind} {name}" for name in REBUILT))
    with caplog.at_level(logging.WARNING, "rookhold_store"), Store.open(finished) as store:
        assert sorted(store.opening.rebuilt) == REBUILT
        assert read_objects(store._writer._db) == expected_objects()
    assert all(f" {name} is missing" in caplog.text for name in REBUILT)
    caplog.clear()
    with Store.open(finished) as store:
        assert store.opening.rebuilt == ()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("name", "altered", "refused"),
    [
        (
            "events_no_update",
            "CREATE TRIGGER events_no_update BEFORE UPDATE ON events WHEN 0 BEGIN SELECT 1; END",
            "UPDATE events SET ts_ms = 1",
        ),
        (
            "jobs_identity",
            "CREATE TRIGGER jobs_identity BEFORE UPDATE OF tenant ON jobs BEGIN SELECT 1; END",
            "UPDATE jobs SET spec_json = '{}'",
        ),
        (
            "jobs_transition",
            "CREATE TRIGGER jobs_transition AFTER INSERT ON events BEGIN SELECT 1; END",
            "UPDATE jobs SET exit_code = 1 WHERE status = 'succeeded'",
        ),
        (
            "job_attestations_no_update",
            "CREATE INDEX job_attestations_no_update ON events (kind)",
            "UPDATE job_attestations SET key_id = 'other'",
        ),
    ],
)
def test_a_weakened_trigger_is_strong_again(
    finished: Path, caplog: pytest.LogCaptureFixture, name: str, altered: str, refused: str
) -> None:
    edit(finished, f"DROP TRIGGER {name}", altered)
    with Store.open(finished) as store:
        assert store.opening.rebuilt == (name,)
        assert f"{name} is altered" in caplog.text
        db = tampering_connection(store.path)
        with pytest.raises(apsw.ConstraintError) as caught:
            db.execute(refused)
        db.close()
        assert isinstance(as_ours(caught.value), RecordRefusedError)


def test_an_index_over_other_columns_is_the_right_one_again(finished: Path) -> None:
    edit(finished, "DROP INDEX jobs_by_tenant", "CREATE INDEX jobs_by_tenant ON jobs (exit_code)")
    with Store.open(finished) as store:
        assert store.opening.rebuilt == ("jobs_by_tenant",)
        assert len(store.read.list_jobs("acme")) == 3


@pytest.mark.parametrize("version", [2, 3])
def test_an_old_files_own_rules_are_made_anew_before_it_is_upgraded(
    path: Path, original: Made, version: int
) -> None:
    db = make_old(path, version)
    copy_down(db, version, original.path)
    if version == 2:  # no job was ever hidden by a store of that version
        with unguarded(path) as lifted:
            for table in ("events", "jobs"):
                lifted.execute(f"DELETE FROM {table} WHERE job_id = ?", (original.hidden,))
    db.execute("DROP TRIGGER events_no_update")
    db.close()
    with Store.open(path, binding=binding) as store:
        assert store.opening.rebuilt == ("events_no_update",)
        assert store.opening.upgraded_from == version
        assert read_objects(store._writer._db) == expected_objects()


def wrong_type(made: Made) -> None:
    with untyped(made.path, "jobs") as db:
        db.execute("UPDATE jobs SET created_at_ms = 'x' WHERE job_id = ?", (made.attested,))


def bad_json(made: Made) -> None:
    with unguarded(made.path) as db:
        db.execute("UPDATE events SET data_json = 'x' WHERE job_id = ?", (made.pending,))


def no_utf8(made: Made) -> None:
    with unguarded(made.path) as db:
        db.execute("UPDATE jobs SET tenant = CAST(x'ff' AS TEXT) WHERE job_id = ?", (made.running,))


def changed_artifact(made: Made) -> None:
    with unguarded(made.path) as db:
        db.execute("UPDATE job_attestations SET result_artifact = x'00'")


def wrong_ledger(made: Made) -> None:
    with unguarded(made.path) as db:
        db.execute("UPDATE job_storage_usage SET retained_bytes = retained_bytes + 1")


@pytest.mark.parametrize(
    ("damage", "place"),
    [
        (wrong_type, "jobs.created_at_ms"),
        (bad_json, "events.data_json"),
        (no_utf8, "jobs.tenant"),
        (changed_artifact, "job_attestations.result_"),
        (wrong_ledger, "job_storage_usage.retained_bytes"),
    ],
)
@pytest.mark.parametrize("gone", ["TRIGGER events_no_update", "INDEX jobs_by_id"])
def test_what_was_written_while_a_rule_was_away_refuses_the_open_by_its_place(
    made: Made, damage: Callable[[Made], None], place: str, gone: str
) -> None:
    damage(made)
    edit(made.path, f"DROP {gone}")
    before = made.path.read_bytes()
    for _ in range(2):
        with pytest.raises(DatabaseDamagedError) as caught:
            Store.open(made.path, binding=binding)
        assert str(caught.value.detail["place"]).startswith(place)
        assert place in str(caught.value)
        assert made.path.read_bytes() == before


def test_a_refused_file_keeps_the_log_that_it_had(made: Made) -> None:
    changed_artifact(made)
    holder = apsw.Connection(str(made.path))  # keeps the log from being run into the file
    holder.execute("DROP TRIGGER events_no_update")
    log = made.path.with_name(made.path.name + "-wal")
    before = made.path.read_bytes(), log.read_bytes()
    with pytest.raises(DatabaseDamagedError):
        Store.open(made.path, binding=binding)
    assert (made.path.read_bytes(), log.read_bytes()) == before
    holder.close()


def test_a_schema_that_sqlite_cannot_read_is_refused_as_damaged(made: Made) -> None:
    db = apsw.Connection(str(made.path))
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_schema SET sql = 'CREATE TRIGGER x' WHERE name = 'events_no_update'")
    db.close()
    with pytest.raises(DatabaseDamagedError):
        Store.open(made.path, binding=binding)
