import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest

from rookhold_store import (
    OpenRefusedError,
    SchemaMismatchError,
    StorageLimits,
    StorageUnavailableError,
    Store,
    WaiveAttestation,
    connection,
)
from rookhold_store.schema import expected_objects, read_objects, schema_text
from rookhold_store.testing import Jobs, TickingClock, anything_binds, tampering_connection
from rookhold_store.verify import verify
from rookhold_types.jobs import JobSpec
from rookhold_types.states import JobStatus


@pytest.fixture
def file(path: Path) -> Path:
    """A closed database with one finished job."""
    with Store.open(path) as store:
        Jobs(store).finished(key="k")
    return path


def edit(path: Path, *statements: str) -> None:
    db = apsw.Connection(str(path))
    db.execute("PRAGMA foreign_keys = OFF")
    for statement in statements:
        db.execute(statement)
    db.close()


def refusal(path: Path) -> str:
    """Return the code with which an open is refused, after checking that nothing was changed."""
    before = {entry.name: entry.read_bytes() for entry in path.parent.iterdir()}
    with pytest.raises(OpenRefusedError) as caught:
        Store.open(path)
    assert {entry.name: entry.read_bytes() for entry in path.parent.iterdir()} == before
    assert len(str(caught.value)) > 40  # says what to do
    return caught.value.code


def test_a_fresh_file_is_the_committed_schema_at_version_4(path: Path) -> None:
    with Store.open(path, clock=TickingClock()):
        db = apsw.Connection(str(path))
        assert read_objects(db) == expected_objects()
        assert [row[0] for row in db.execute("SELECT version FROM schema_migrations")] == [
            *(1, 2, 3, 4)
        ]
        assert db.pragma("user_version") == 4
        assert db.execute("SELECT accounting_revision FROM store_meta").get == 2
        assert db.pragma("journal_mode") == "wal"
        assert db.pragma("auto_vacuum") == 2
        assert db.execute("SELECT charged_bytes FROM storage_usage_total").get == 0
        db.close()


def test_the_writer_commits_durably_with_foreign_keys_and_secure_deletion(store: Store) -> None:
    db = store._writer._db
    names = ("synchronous", "foreign_keys", "secure_delete", "busy_timeout")
    assert [db.pragma(name) for name in names] == [2, 1, 2, 5000]


def test_every_setting_is_in_force_also_those_after_one_that_answers(store: Store) -> None:
    in_force = {
        "recursive_triggers": 1,
        "trusted_schema": 0,
        "cell_size_check": 1,
        "temp_store": 2,
        "journal_size_limit": 16 * 1024 * 1024,
    }
    writer = store._writer._db
    assert {name: writer.pragma(name) for name in in_force} == in_force
    store.read.counts("acme")
    (reader,) = store.read._idle
    assert (reader.pragma("query_only"), reader.pragma("trusted_schema")) == (1, 0)


def test_every_table_is_strict_and_no_index_holds_json() -> None:
    objects = expected_objects()
    tables = {name: item for name, item in objects.items() if item.kind == "table"}
    assert sorted(tables) == [
        *("attestation_outbox", "attestation_quarantine", "events", "idempotency_keys"),
        *("job_attestations", "job_storage_usage", "jobs", "retention_tombstones"),
        *("schema_migrations", "storage_usage_total", "store_meta", "tenant_storage_usage"),
    ]
    assert all("STRICT" in (item.sql or "").rsplit(")", 1)[1] for item in tables.values())
    indexes = [item.sql or "" for item in objects.values() if item.kind == "index"]
    assert indexes
    assert not any("_json" in sql for sql in indexes)


def test_the_schemas_statuses_are_those_of_the_types() -> None:
    sql = expected_objects()["jobs"].sql or ""
    assert all(f"'{status}'" in sql for status in JobStatus)


def test_a_reopened_file_behaves_like_a_fresh_one(file: Path) -> None:
    with Store.open(file) as store:
        jobs = Jobs(store)
        assert len(store.read.list_jobs("acme")) == 1
        assert store.read.last_seq(jobs.finished()) == 4


@pytest.mark.parametrize(
    ("statements", "code"),
    [
        (("PRAGMA user_version = -1",), "schema_version"),
        (("PRAGMA user_version = 5",), "schema_version"),
        (("PRAGMA user_version = 0",), "schema_history"),
        (("PRAGMA user_version = 3",), "schema_history"),
        (
            ("DROP TRIGGER schema_migrations_no_delete", "DELETE FROM schema_migrations"),
            "schema_history",
        ),
        (
            (
                "DROP TRIGGER schema_migrations_no_delete",
                "DELETE FROM schema_migrations WHERE version > 2",
                "PRAGMA user_version = 2",
            ),
            "schema_mismatch",
        ),
        (("DROP TABLE schema_migrations",), "schema_history"),
        (("DROP TABLE job_attestations",), "schema_mismatch"),
        (("DROP TABLE attestation_outbox",), "schema_mismatch"),
        (("DROP TABLE idempotency_keys",), "schema_mismatch"),
        (("DROP TABLE store_meta",), "schema_mismatch"),
        (("CREATE TABLE extra (a)",), "schema_mismatch"),
        (("CREATE VIEW extra AS SELECT 1",), "schema_mismatch"),
        (("ALTER TABLE jobs ADD COLUMN extra TEXT",), "schema_mismatch"),
        (
            ("ALTER TABLE idempotency_keys RENAME COLUMN request_sha256 TO digest",),
            "schema_mismatch",
        ),
        (("CREATE TRIGGER extra AFTER INSERT ON jobs BEGIN SELECT 1; END",), "schema_mismatch"),
        (("CREATE INDEX extra ON jobs (status)",), "schema_mismatch"),
        (("CREATE TABLE gov_run (a TEXT) STRICT",), "schema_mismatch"),
        (("CREATE TABLE gov_migrations (a)",), "schema_mismatch"),
        (
            ("CREATE TABLE gov_migrations (version INTEGER, applied_at_ms INTEGER)",),
            "schema_history",
        ),
        (
            (
                "CREATE TABLE gov_migrations (version INTEGER PRIMARY KEY, applied_at_ms INTEGER)",
                "INSERT INTO gov_migrations VALUES (2, 0)",
            ),
            "schema_history",
        ),
        (
            (
                "CREATE TRIGGER gov_hook AFTER INSERT ON jobs BEGIN SELECT 1; END",
                "CREATE TABLE gov_migrations (version INTEGER PRIMARY KEY, applied_at_ms INTEGER)",
                "INSERT INTO gov_migrations VALUES (1, 0)",
            ),
            "schema_mismatch",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value[-1][:60],
)
def test_a_changed_file_is_refused_with_a_code_and_left_alone(
    file: Path, statements: tuple[str, ...], code: str
) -> None:
    edit(file, *statements)
    assert refusal(file) == code


def test_governance_tables_with_their_own_history_are_welcome(file: Path) -> None:
    edit(
        file,
        "CREATE TABLE gov_migrations (version INTEGER PRIMARY KEY, applied_at_ms INTEGER) STRICT",
        "INSERT INTO gov_migrations VALUES (1, 0), (2, 0)",
        "CREATE TABLE gov_run (id TEXT PRIMARY KEY) STRICT",
        "CREATE INDEX gov_run_index ON gov_run (id)",
        "CREATE TRIGGER gov_run_stays BEFORE DELETE ON gov_run BEGIN SELECT RAISE(ABORT, ''); END",
    )
    with Store.open(file) as store:
        assert store.read.probe() is True


def bytes_read() -> int:
    """Return what this process has read by system calls."""
    text = Path("/proc/self/io").read_text()
    return int(text.split("rchar: ")[1].split()[0])


def test_a_healthy_reopen_reads_no_payload(path: Path) -> None:
    with Store.open(path, binding=anything_binds) as store:
        jobs = Jobs(store)
        for _ in range(4):
            job_id = jobs.running(spec=JobSpec(language="python", code="#" * (1024 * 1024)))
            jobs.append(job_id, "x" * (1024 * 1024))
            jobs.finalise(job_id, receipt={"padding": "x" * (1024 * 1024)})
            store.call(jobs.attestation(job_id, result_artifact=bytes(1024 * 1024)))
    before = bytes_read()
    with Store.open(path) as store:
        assert len(store.read.list_jobs("acme")) == 4
        assert bytes_read() - before < 1024 * 1024
        store.read.get("acme", job_id)
        assert bytes_read() - before > 2 * 1024 * 1024  # so the measure does see payloads


PAYLOAD = {
    *("spec_json", "effective_spec_json", "receipt_json", "data_json"),
    *("result_artifact", "envelope_json"),
}


def test_no_statement_of_a_healthy_open_names_a_payload_column(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = StorageLimits(global_bytes=2**40, tenant_bytes=2**40, free_reserve_bytes=1)
    with Store.open(path, binding=anything_binds) as store:
        jobs = Jobs(store)
        store.call(jobs.attestation(jobs.finished(key="k")))
        jobs.finished()
        jobs.running()
    read: set[str] = set()
    opens = connection.open_existing

    def note(kind: int, _: str | None, column: str | None, *__: str | None) -> int:
        if kind == apsw.SQLITE_READ and column:
            read.add(column)
        return apsw.SQLITE_OK

    def watched(file: Path) -> apsw.Connection:
        db = opens(file)
        db.authorizer = note
        return db

    monkeypatch.setattr(connection, "open_existing", watched)
    with Store.open(path, limits=limits) as store:
        assert {"version", "accounting_revision", "failed_at_ms"} <= read  # so it does note
        assert read & PAYLOAD == set()
        store._writer._db.execute("SELECT spec_json FROM jobs")
        assert read & PAYLOAD == {"spec_json"}


def test_an_optimised_file_still_opens(file: Path) -> None:
    edit(file, "ANALYZE")
    with Store.open(file) as store:
        assert store.read.probe() is True


@pytest.mark.parametrize(
    "statements",
    [
        ("CREATE TABLE jobs (id INTEGER PRIMARY KEY)",),
        ("CREATE TABLE _sqlx_migrations (version BIGINT)", "CREATE TABLE jobs (job_id TEXT)"),
        ("CREATE TABLE schema_migrations (version VARCHAR(255))", "PRAGMA user_version = 4"),
        ("CREATE VIEW schema_migrations AS SELECT 1 AS version",),
        ("CREATE TABLE t (a)", "PRAGMA user_version = 7"),
    ],
    ids=lambda value: value[0][:50],
)
def test_another_programs_database_is_refused_as_foreign(
    path: Path, statements: tuple[str, ...]
) -> None:
    path.parent.mkdir(mode=0o700)
    edit(path, *statements)
    assert refusal(path) == "foreign_schema"


def test_a_file_that_is_no_database_is_refused_as_foreign(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b"not a database, though long enough to look like one" * 100)
    assert refusal(path) == "foreign_schema"


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE t (a); DROP TABLE t", schema_text()], ids=["empty", "whole"]
)
def test_a_database_of_another_encoding_is_refused_as_foreign(path: Path, statement: str) -> None:
    path.parent.mkdir(mode=0o700)
    edit(path, "PRAGMA encoding = 'UTF-16le'", statement)
    assert refusal(path) == "foreign_schema"


def test_a_schema_with_names_that_are_not_utf8_is_refused_as_foreign(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    edit(path, "CREATE TABLE unusual (a)")
    path.write_bytes(path.read_bytes().replace(b"unusual", b"\xff\xfeusual"))
    assert refusal(path) == "foreign_schema"


def test_an_empty_database_of_other_hands_becomes_one_that_can_give_space_back(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    edit(path, "PRAGMA page_size = 8192", "PRAGMA application_id = 7")
    with Store.open(path) as store:
        assert store._writer._db.pragma("auto_vacuum") == 2


RACER = """
import sys
from rookhold_store import Store
from rookhold_store.testing import Jobs
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    with Store.open(f"{sys.argv[1]}/{number}/jobs.db", profile=sys.argv[2]) as store:
        Jobs(store).finished()
"""


def test_processes_that_open_one_new_file_at_once_all_get_it(path: Path) -> None:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(path.parent), profile],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for profile in ("1", "2", "3")
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    assert [racer.communicate(timeout=120)[1] for racer in racers] == [""] * 3
    for number in range(20):
        with Store.open(path.parent / str(number) / "jobs.db") as store:
            assert len(store.read.list_jobs("acme")) == 3


def test_an_open_waits_for_a_writer_that_is_at_work(path: Path) -> None:
    with Store.open(path) as store:
        job_id = Jobs(store).finished()
        store.call(WaiveAttestation(job_id=job_id))
        other = tampering_connection(path)
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE gov_migrations (version INTEGER, applied_at_ms INTEGER)")
        other.execute("INSERT INTO gov_migrations VALUES (1, 0)")
        late = threading.Timer(0.5, lambda: other.execute("COMMIT"))
        late.start()
        with Store.open(path) as second:
            assert second.read.outbox(job_id) is not None  # listed again, after the other's commit
        late.join()
        other.close()


def test_an_empty_database_that_claims_a_version_is_not_taken_as_fresh(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    edit(path, "PRAGMA user_version = 4")
    assert refusal(path) == "foreign_schema"


def test_a_creation_that_was_cut_short_is_taken_up_again(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    edit(path, "PRAGMA auto_vacuum = INCREMENTAL", "PRAGMA journal_mode = WAL")
    with Store.open(path) as store:
        assert store.read.probe() is True
        assert store._writer._db.pragma("auto_vacuum") == 2


def test_a_creation_whose_commit_fails_leaves_an_empty_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rookhold_store.schema.fresh.schema_text", lambda: schema_text() + "\nSELECT sabotage();"
    )
    with pytest.raises(StorageUnavailableError):
        Store.open(path)
    monkeypatch.undo()
    with Store.open(path) as store:
        assert store.read.list_jobs("acme") == ()


def test_the_databases_files_are_private_while_open_and_after(path: Path) -> None:
    def modes() -> set[int]:
        return {stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()}

    before = os.umask(0)
    try:
        with Store.open(path) as store:
            Jobs(store).finished()
            assert len(list(path.parent.iterdir())) == 3
            assert modes() == {0o600}
    finally:
        os.umask(before)
    assert list(path.parent.iterdir()) == [path]  # the log was emptied and removed
    assert modes() == {0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_switch_to_the_write_ahead_log_waits_for_another_opener(path: Path) -> None:
    path.parent.mkdir()
    made = apsw.Connection(str(path))
    made.execute("CREATE TABLE t(a)")
    made.execute("BEGIN EXCLUSIVE")
    done = threading.Event()

    def let_go() -> None:
        assert not done.wait(0.3)
        made.execute("COMMIT")

    other = connection.open_existing(path)
    other.set_busy_timeout(0)  # what SQLite does in a switch whatever the timeout says
    holder = threading.Thread(target=let_go)
    holder.start()
    try:
        connection.prepare_writer(other)
    finally:
        done.set()
        holder.join()
        other.close()
        made.close()


@pytest.mark.parametrize("statement", ["PRAGMA user_version = 9", "CREATE TABLE extra (a)"])
def test_a_refused_file_keeps_the_log_that_a_killed_process_left(
    file: Path, statement: str
) -> None:
    """What was committed last may be in the log alone, and whose it is is not known."""
    db = apsw.Connection(str(file))
    db.wal_autocheckpoint(0)
    db.execute(statement)
    names = (file, file.with_name(f"{file.name}-wal"))
    left = [name.read_bytes() for name in names]
    db.close()
    file.write_bytes(left[0])
    names[1].write_bytes(left[1])
    with pytest.raises(OpenRefusedError):
        Store.open(file)
    assert [name.read_bytes() for name in names] == left


@pytest.mark.parametrize(
    ("statements", "detail"),
    [
        (("DROP TABLE job_attestations",), ("job_attestations", None, "missing")),
        (("CREATE TABLE extra (a)",), (None, None, "extra")),
        (("ALTER TABLE events ADD COLUMN extra TEXT",), ("events", None, "extra")),
        (
            ("ALTER TABLE idempotency_keys RENAME COLUMN request_sha256 TO digest",),
            ("idempotency_keys", "request_sha256", "missing"),
        ),
        (
            (
                "PRAGMA writable_schema = ON",
                "UPDATE sqlite_schema SET sql = replace(sql, 'exit_code INTEGER', 'exit_code TEXT')"
                " WHERE name = 'jobs'",
            ),
            ("jobs", "exit_code", "different"),
        ),
        (
            (
                "PRAGMA writable_schema = ON",
                "UPDATE sqlite_schema SET sql = replace(sql, 'BETWEEN 16 AND', 'BETWEEN 1 AND')"
                " WHERE name = 'jobs'",
            ),
            ("jobs", None, "different"),
        ),
    ],
    ids=lambda value: value[-1][:50] if isinstance(value, tuple) else None,
)
def test_a_refusal_names_table_and_column_and_what_to_do(
    file: Path, statements: tuple[str, ...], detail: tuple[str | None, str | None, str]
) -> None:
    edit(file, *statements)
    with pytest.raises(SchemaMismatchError, match="restore a backup") as caught:
        Store.open(file)
    said = caught.value.detail
    assert (said.get("object"), said.get("column"), said["problem"]) == detail
    assert said["version"] == 4
    for name in detail[:2]:
        assert name is None or name in str(caught.value)


def plant(path: Path, *row: object) -> None:
    """Write a row into the schema table itself, where no statement checks it."""
    db = apsw.Connection(str(path))
    db.execute("PRAGMA writable_schema = ON")
    db.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", row)
    db.close()


PLANTED_TRIGGER = (
    "CREATE TRIGGER sqlite_autoindex_jobs_9 AFTER INSERT ON attestation_outbox "
    "BEGIN DELETE FROM retention_tombstones; END"
)


@pytest.mark.parametrize(
    "row",
    [
        ("trigger", "sqlite_autoindex_jobs_9", "attestation_outbox", 0, PLANTED_TRIGGER),
        ("view", "sqlite_stat1", "sqlite_stat1", 0, "CREATE VIEW sqlite_stat1 AS SELECT 1 AS tbl"),
        ("table", "sqlite_x", "sqlite_x", 0, "CREATE VIRTUAL TABLE sqlite_x USING fts5(x)"),
        (
            "trigger",
            b"planted",
            "jobs",
            0,
            "CREATE TRIGGER planted DELETE ON jobs BEGIN SELECT 1; END",
        ),
    ],
    ids=["trigger", "view", "virtual", "blob"],
)
def test_what_was_planted_under_a_name_of_sqlites_own_or_as_a_blob_is_refused_and_found(
    file: Path, row: tuple[object, ...]
) -> None:
    plant(file, *row)
    assert refusal(file) == "schema_mismatch"
    assert next(verify(file)).place.startswith("schema.")


def test_a_table_of_statistics_is_sqlites_own(file: Path) -> None:
    edit(file, "ANALYZE")
    assert list(verify(file)) == []
    Store.open(file).close()


def test_a_governance_table_that_a_module_would_run_is_refused(file: Path) -> None:
    edit(
        file,
        "CREATE VIRTUAL TABLE gov_migrations USING fts5(version, applied_at_ms)",
        "INSERT INTO gov_migrations VALUES (1, 1)",
    )
    assert refusal(file) == "schema_mismatch"


HALF_WRITTEN = """
import os, sys, apsw
db = apsw.Connection(sys.argv[1])
db.execute("CREATE TABLE t (x); INSERT INTO t VALUES (zeroblob(100000))")
db.execute("PRAGMA cache_size = 1; BEGIN; UPDATE t SET x = randomblob(100000)")
db.execute("INSERT INTO t VALUES (randomblob(9000000))")
os._exit(0)
"""


def test_another_programs_file_is_refused_before_its_journal_is_rolled_back(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    subprocess.run([sys.executable, "-c", HALF_WRITTEN, str(path)], check=True)
    assert path.with_name(f"{path.name}-journal").stat().st_size
    assert refusal(path) == "foreign_schema"
