import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookhold_store import (
    MigrationRefusedError,
    OpenRefusedError,
    RecoverRunning,
    Store,
    StoreError,
    Sweep,
    connection,
)
from rookhold_store.accounting import findings
from rookhold_store.schema import expected_objects, read_objects
from rookhold_store.testing import Jobs, TickingClock, anything_binds
from rookhold_store.testing.lineage import copy_down, insert, make_old, unruled
from rookhold_store.verify import verify
from rookhold_types.jobs import JobSpec
from rookhold_types.limits import Limits
from rookhold_types.states import JobStatus

NOW = 5_000_000
GOOD: dict[str, Any] = {
    "tenant": "acme",
    "language": "python",
    "status": "succeeded",
    "spec_json": '{"limits":{"mem_mb":512}}',
    "created_at_ms": 1000,
    "started_at_ms": 2000,
    "finished_at_ms": 3000,
    "exit_code": 0,
}
EVENT: dict[str, Any] = {"ts_ms": 1500, "kind": "stdout", "data_json": '{"line":"1","eol":true}'}


def clock() -> int:
    return NOW


class V1:
    """A file of version 1 that takes rows one by one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.db = make_old(path, 1)
        self.db.execute("BEGIN")

    def job(self, job_id: str = "job", **changes: Any) -> None:
        insert(self.db, "jobs", job_id=job_id, **{**GOOD, **changes})

    def event(self, job_id: str = "job", seq: object = 1, **changes: Any) -> None:
        insert(self.db, "events", job_id=job_id, seq=seq, **{**EVENT, **changes})

    def close(self) -> None:
        self.db.execute("COMMIT")
        self.db.close()

    def migrated(self, sql: str = "SELECT * FROM jobs WHERE job_id = 'job'") -> dict[str, Any]:
        """Open the file as a store would, and return one row of it."""
        self.close()
        with Store.open(self.path, clock=clock) as store:
            assert store.opening.upgraded_from == 1
            assert list(verify(self.path)) == []
            cursor = store._writer._db.execute(sql)
            names = [name for name, *_ in cursor.get_description()]
            return dict(zip(names, cursor.fetchone(), strict=True))


@pytest.fixture
def v1(path: Path) -> V1:
    return V1(path)


@pytest.mark.parametrize(
    ("column", "before", "after"),
    [
        ("tenant", None, "__legacy_invalid__:job"),
        ("tenant", "", "__legacy_invalid__:job"),
        ("tenant", " \t\r\n", "__legacy_invalid__:job"),
        ("tenant", b"acme", "__legacy_invalid__:job"),
        ("tenant", " acme ", " acme "),
        ("tenant", 7, "7"),
        ("language", " ", "unknown"),
        ("language", None, "unknown"),
        ("language", b"python", "unknown"),
        ("language", "cobol", "cobol"),
        ("status", "exploded", "error"),
        ("status", None, "error"),
        ("status", b"succeeded", "error"),
        ("status", "Succeeded", "error"),
        ("spec_json", "print(1)", '{"legacy_invalid_spec_json":"print(1)"}'),
        ("spec_json", "", '{"legacy_invalid_spec_json":""}'),
        ("spec_json", None, '{"legacy_invalid_spec_json":null}'),
        ("spec_json", b"{}", '{"legacy_invalid_spec_json":"blob:hex:7b7d"}'),
        ("spec_json", b"\xff\x00", '{"legacy_invalid_spec_json":"blob:hex:ff00"}'),
        ("spec_json", '{"a":1}\0x', '{"legacy_invalid_spec_json":"{\\"a\\":1}\\u0000x"}'),
        ("spec_json", '{ "a" : [1, 2.5] }', '{ "a" : [1, 2.5] }'),
        ("spec_json", "1e999", '{"legacy_invalid_spec_json":"1e999"}'),
        ("spec_json", '"\\ud800"', '{"legacy_invalid_spec_json":"\\"\\\\ud800\\""}'),
        ("spec_json", "[" * 1500, '{"legacy_invalid_spec_json":"' + "[" * 1500 + '"}'),
        ("effective_spec_json", "no", '{"legacy_invalid_spec_json":"no"}'),
        ("effective_spec_json", None, None),
        ("effective_spec_json", '{"a":1}', '{"a":1}'),
        ("created_at_ms", "2024-05-01", 0),
        ("created_at_ms", None, 0),
        ("created_at_ms", -1, 0),
        ("created_at_ms", 1.5, 0),
        ("created_at_ms", b"1", 0),
        ("created_at_ms", 2**53, 0),
        ("created_at_ms", "1234", 1234),
        ("started_at_ms", "yesterday", None),
        ("started_at_ms", -5, None),
        ("finished_at_ms", "later", 2000),
        ("finished_at_ms", None, 2000),
        ("exit_code", 2**31, None),
        ("exit_code", -(2**31) - 1, None),
        ("exit_code", -(2**31), -(2**31)),
        ("exit_code", "nine", None),
        ("exit_code", 1.5, None),
        ("exit_code", b"0", None),
        ("exit_code", None, None),
    ],
    ids=repr,
)
def test_a_column_of_version_1_is_put_in_order(
    v1: V1, column: str, before: object, after: object
) -> None:
    v1.job(**{column: before})
    v1.event()
    row = v1.migrated()
    changed = {column: after}
    if column == "spec_json":
        changed["admitted_mem_mb"] = 256
    expected = {**GOOD, "effective_spec_json": None, "admitted_mem_mb": 512, **changed}
    assert row == {"job_id": "job", "receipt_json": None, **expected}


def test_texts_that_are_not_utf8_are_told_from_texts(v1: V1) -> None:
    v1.job()
    v1.db.execute("UPDATE jobs SET tenant = CAST(x'ff' AS TEXT), language = CAST(x'c0' AS TEXT)")
    v1.db.execute("UPDATE jobs SET spec_json = CAST(x'22ff22' AS TEXT)")
    row = v1.migrated()
    assert row["tenant"] == "__legacy_invalid__:job"
    assert row["language"] == "unknown"
    assert row["spec_json"] == '{"legacy_invalid_spec_json":"blob:hex:22ff22"}'


@pytest.mark.parametrize(
    ("status", "times", "after"),
    [
        ("queued", (1000, 2000, 3000), (1000, None, None)),
        ("queued", ("x", "y", "z"), (0, None, None)),
        ("running", (1000, 2000, 3000), (1000, 2000, None)),
        ("running", (1000, None, None), (1000, 1000, None)),
        ("running", (1000, "x", None), (1000, 1000, None)),
        ("running", (None, None, None), (0, NOW, None)),
        ("failed", (1000, None, None), (1000, None, 1000)),
        ("failed", ("x", None, None), (0, None, NOW)),
        ("failed", ("x", 2000, "y"), (0, 2000, 2000)),
        ("never heard of", (1000, 2000, None), (1000, 2000, 2000)),
    ],
)
def test_a_state_that_needs_a_time_gets_the_nearest(
    v1: V1, status: str, times: tuple[Any, ...], after: tuple[Any, ...]
) -> None:
    names = ("created_at_ms", "started_at_ms", "finished_at_ms")
    v1.job(status=status, **dict(zip(names, times, strict=True)))
    row = v1.migrated()
    assert tuple(row[name] for name in names) == after


@pytest.mark.parametrize(
    ("column", "before", "after"),
    [
        ("kind", " ", "legacy_unknown"),
        ("kind", None, "legacy_unknown"),
        ("kind", b"stdout", "legacy_unknown"),
        ("kind", "own_kind", "own_kind"),
        ("data_json", "hello", '{"legacy_invalid_data_json":"hello"}'),
        ("data_json", b"hello", '{"legacy_invalid_data_json":"blob:hex:68656c6c6f"}'),
        ("data_json", None, '{"legacy_invalid_data_json":null}'),
        ("data_json", "[1]", "[1]"),
        ("ts_ms", "noon", 2000),
        ("ts_ms", -1, 2000),
        ("ts_ms", None, 2000),
        ("ts_ms", 0, 0),
    ],
    ids=repr,
)
def test_an_event_of_version_1_is_put_in_order_and_never_hashed(
    v1: V1, column: str, before: object, after: object
) -> None:
    v1.job()
    v1.event(**{column: before})
    row = v1.migrated("SELECT * FROM events")
    legacy = {"prev_hash": "", "event_hash": "", "hash_version": 0}
    assert row == {"job_id": "job", "seq": 1, **EVENT, **legacy, column: after}


def test_an_event_without_any_good_time_gets_that_of_the_step(v1: V1) -> None:
    v1.job(status="queued", created_at_ms="x")
    v1.event(ts_ms="x")
    assert v1.migrated("SELECT ts_ms FROM events") == {"ts_ms": NOW}


@pytest.mark.parametrize(
    ("spoil", "word"),
    [
        (lambda v1: v1.event("nobody's"), "events"),
        (lambda v1: v1.event(seq=0), "seq"),
        (lambda v1: v1.event(seq=-3), "seq"),
        (lambda v1: v1.event(seq="one"), "seq"),
        (lambda v1: v1.event(seq=1.5), "seq"),
        (lambda v1: v1.db.execute("UPDATE jobs SET job_id = CAST(x'ff' AS TEXT)"), "job id"),
    ],
    ids=["orphan", "zero", "negative", "text", "fraction", "id"],
)
def test_a_row_that_nothing_can_stand_for_stops_the_migration(
    v1: V1, spoil: Callable[[V1], object], word: str
) -> None:
    v1.job()
    spoil(v1)
    v1.close()
    before = v1.path.read_bytes()
    with pytest.raises(MigrationRefusedError, match=word):
        Store.open(v1.path)
    assert v1.path.read_bytes() == before
    db = apsw.Connection(str(v1.path))
    assert (db.pragma("user_version"), read_objects(db)) == (1, expected_objects(1))
    db.close()


CELLS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=20).filter(lambda value: value.isascii() or value.isprintable()),
    st.binary(max_size=20),
    st.sampled_from(
        ["queued", "running", "succeeded", "error", "{}", "[1,2]", '"x"', " ", "python"]
    ),
    st.recursive(
        st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)
    ).map(lambda value: json.dumps(value)),
)
TEXTS = ("tenant", "language", "status", "spec_json", "effective_spec_json")
TIMES = ("created_at_ms", "started_at_ms", "finished_at_ms")
ROWS = st.fixed_dictionaries(dict.fromkeys((*TEXTS, *TIMES, "exit_code"), CELLS))
EVENTS = st.fixed_dictionaries(dict.fromkeys(("ts_ms", "kind", "data_json"), CELLS))
SPACE = "\t\n\v\f\r "


def words(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip(SPACE) else None


def time_of(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**53 else None


def json_of(value: object, member: str) -> str:
    memory = apsw.Connection(":memory:")
    if isinstance(value, str) and memory.execute("SELECT json_valid(?)", (value,)).get:
        with suppress(msgspec.DecodeError):
            msgspec.json.decode(value.encode())
            return value
    kept = f"blob:hex:{value.hex()}" if isinstance(value, bytes) else value
    return json.dumps({member: kept}, ensure_ascii=False, separators=(",", ":"))


def in_order(job_id: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return what becomes of a job of version 1: the rules once more, in other words."""
    status = row["status"] if row["status"] in list(JobStatus) else "error"
    created, started, finished = (time_of(row[name]) for name in TIMES)
    nearest = next((at for at in (started, created) if at is not None), NOW)
    if status == "queued":
        started = finished = None
    elif status == "running":
        started, finished = nearest, None
    elif finished is None:
        finished = nearest
    code = row["exit_code"]
    effective = row["effective_spec_json"]
    return {
        "tenant": words(row["tenant"]) or f"__legacy_invalid__:{job_id}",
        "language": words(row["language"]) or "unknown",
        "status": status,
        "spec_json": json_of(row["spec_json"], "legacy_invalid_spec_json"),
        "effective_spec_json": (
            None if effective is None else json_of(effective, "legacy_invalid_spec_json")
        ),
        "created_at_ms": created or 0,
        "started_at_ms": started,
        "finished_at_ms": finished,
        "exit_code": code if type(code) is int and -(2**31) <= code < 2**31 else None,
    }


def event_in_order(row: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    when = time_of(row["ts_ms"])
    if when is None:
        started = job["started_at_ms"]
        when = started if started is not None else job["created_at_ms"] or NOW
    return {
        "ts_ms": when,
        "kind": words(row["kind"]) or "legacy_unknown",
        "data_json": json_of(row["data_json"], "legacy_invalid_data_json"),
    }


def table(db: apsw.Connection, name: str, keys: tuple[str, ...], columns: Any) -> dict[Any, Any]:
    rows = db.execute(f"SELECT {', '.join((*keys, *columns))} FROM {name}")
    return {row[: len(keys)]: dict(zip(columns, row[len(keys) :], strict=True)) for row in rows}


def both(db: apsw.Connection) -> tuple[dict[Any, Any], dict[Any, Any]]:
    jobs = table(db, "jobs", ("job_id",), (*TEXTS, *TIMES, "exit_code"))
    return jobs, table(db, "events", ("job_id", "seq"), ("ts_ms", "kind", "data_json"))


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.tuples(ROWS, st.lists(EVENTS, max_size=3)), min_size=1, max_size=6))
def test_whatever_version_1_holds_becomes_a_sound_store_that_goes_on(
    rows: list[tuple[dict[str, Any], list[Any]]],
) -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="rookhold-v1-", dir=memory) as home:
        v1 = V1(Path(home) / "state" / "jobs.db")
        for number, (row, events) in enumerate(rows):
            v1.job(f"job-{number}", **row)
            for seq, event in enumerate(events, 1):
                v1.event(f"job-{number}", seq, **event)
        jobs, history = both(v1.db)
        v1.close()
        wanted = {key: in_order(key[0], row) for key, row in jobs.items()}
        told = {key: event_in_order(row, wanted[key[:1]]) for key, row in history.items()}
        with Store.open(v1.path, clock=TickingClock(NOW - 1)) as store:
            assert both(store._writer._db) == (wanted, told)
            assert [str(finding) for finding in verify(v1.path)] == []
            for job_id in store.read.running_ids(100):
                assert store.call(RecoverRunning(job_id=job_id, now_ms=store.clock())) is not None
            for queued in store.read.queued_page():
                Jobs(store).start(queued.job_id)
                Jobs(store).finalise(queued.job_id)
            assert store.read.running_ids(100) == store.read.queued_page() == ()
            assert [str(finding) for finding in verify(v1.path)] == []


@pytest.fixture
def source(path: Path) -> Path:
    """A closed store with a queued, a running and some finished jobs, one with a key."""
    file = path.with_name("source.db")
    with Store.open(file, binding=anything_binds, clock=TickingClock()) as store:
        jobs = Jobs(store)
        jobs.accept(tenant="globex", memory=64)
        large = JobSpec(language="python", code="1", limits=Limits(mem_mb=1024))
        jobs.append(jobs.running(memory=1024, spec=large), "half")
        for key in (None, "k"):
            jobs.finished(key=key)
        store.call(jobs.attestation(jobs.finished(tenant="globex")))
    return file


def rows_of(path: Path, table: str, names: str) -> list[Any]:
    db = apsw.Connection(str(path))
    try:
        return db.execute(f"SELECT {names} FROM {table} ORDER BY 1, 2").fetchall()
    finally:
        db.close()


SMALL = "job_id, tenant, language, status, created_at_ms, started_at_ms, finished_at_ms, exit_code"
JOB = f"{SMALL}, CAST(spec_json AS BLOB), effective_spec_json, CAST(receipt_json AS BLOB)"


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("auto_vacuum", ["INCREMENTAL", "NONE"])
def test_rows_of_versions_2_and_3_come_through_byte_for_byte(
    path: Path, source: Path, version: int, auto_vacuum: str
) -> None:
    db = make_old(path, version, auto_vacuum=auto_vacuum)
    copy_down(db, version, source)
    db.close()
    before = rows_of(path, "jobs", JOB), rows_of(path, "events", "*")
    with Store.open(path, clock=clock) as store:
        assert store.opening.upgraded_from == version
        assert (rows_of(path, "jobs", JOB), rows_of(path, "events", "*")) == before
        assert list(verify(path)) == []
        assert read_objects(store._writer._db) == expected_objects()
        waiting = [row.job_id for row in store.read.pending_attestations(NOW, 100)]
        assert len(waiting) == 3
        for job_id in waiting:
            row = store.read.outbox(job_id)
            assert row is not None
            finished = store.read.get(None, job_id)
            assert finished is not None
            assert row.pending_since_ms == row.next_attempt_ms == finished.finished_at_ms
        # An unfinished job goes on where it was, in the same chain.
        (running,) = store.read.running_ids()
        assert store.call(RecoverRunning(job_id=running, now_ms=NOW)) is not None
        assert list(verify(path)) == []
    with Store.open(path) as again:
        assert again.opening.upgraded_from is None


def test_an_idempotency_key_of_version_3_still_replays_and_is_charged(
    path: Path, source: Path
) -> None:
    db = make_old(path, 3)
    copy_down(db, 3, source)
    db.close()
    with Store.open(path) as store:
        key = store.read.find_key("acme", "k")
        assert key is not None
        assert rows_of(path, "idempotency_keys", "*") == rows_of(source, "idempotency_keys", "*")
        assert findings(store._writer._db) == []


@pytest.mark.parametrize(
    ("limits", "memory"),
    [
        ({"mem_mb": 300}, 300),
        ({"mem_mb": 1}, 16),
        ({"mem_mb": 100_000}, 4096),
        ({"mem_mb": 10**30}, 4096),
        ({"mem_mb": -(10**30)}, 16),
        ({"mem_mb": 300.0}, 256),
        ({"mem_mb": "300"}, 256),
        ({"mem_mb": True}, 256),
        ({"mem_mb": None}, 256),
        ({}, 256),
        ([300], 256),
        (None, 256),
    ],
    ids=repr,
)
def test_admitted_memory_is_the_specs_within_bounds_and_else_256(
    v1: V1, limits: object, memory: int
) -> None:
    v1.job(spec_json=json.dumps({"limits": limits}))
    assert v1.migrated()["admitted_mem_mb"] == memory


def test_a_row_that_breaks_a_rule_of_a_later_version_stops_the_migration(
    path: Path, source: Path
) -> None:
    db = make_old(path, 3)
    copy_down(db, 3, source)
    with unruled(db, 3):
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute("UPDATE idempotency_keys SET tenant = 'nobody'")
    db.close()
    before = path.read_bytes()
    with pytest.raises(MigrationRefusedError, match="idempotency_keys"):
        Store.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [2, 3])
def test_a_time_that_no_receipt_can_hold_stops_the_migration(
    path: Path, source: Path, version: int
) -> None:
    """Found later, it would make the end of that job fail, and with it every start."""
    db = make_old(path, version)
    copy_down(db, version, source)
    with unruled(db, version):
        db.execute(
            "UPDATE jobs SET created_at_ms = 1 << 60 WHERE job_id = (SELECT min(job_id) FROM jobs)"
        )
    db.close()
    before = path.read_bytes()
    with pytest.raises(MigrationRefusedError, match="no receipt can hold"):
        Store.open(path)
    assert path.read_bytes() == before


def test_a_failed_commit_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    v1 = V1(path)
    v1.job()
    v1.event()
    v1.close()
    before = path.read_bytes()
    opens = connection.open_existing

    def failing(file: Path) -> apsw.Connection:
        db = opens(file)
        db.set_commit_hook(lambda: True)  # of all commits of an open only the upgrade comes first
        return db

    monkeypatch.setattr(connection, "open_existing", failing)
    with pytest.raises(StoreError):
        Store.open(path)
    assert path.read_bytes() == before
    monkeypatch.undo()
    with Store.open(path) as store:
        assert store.opening.upgraded_from == 1


KILLED = """
import os, signal, sys
from rookhold_store import Store, accounting
from rookhold_store.schema import upgrade
wanted = sys.argv[2]
def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def after(name, module):
    real = getattr(module, name)
    def killing(*values, **named):
        real(*values, **named)
        kill()
    setattr(module, name, killing)
if wanted == "step":
    after("run_steps", sys.modules["rookhold_store.schema.upgrade"])
elif wanted == "ledger":
    after("write_ledger", accounting)
elif wanted == "commit":
    after("_check_references", sys.modules["rookhold_store.schema.upgrade"])
Store.open(sys.argv[1])
"""


@pytest.mark.parametrize("moment", ["step", "commit", "ledger"])
@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_kill_in_the_middle_leaves_the_old_version_which_then_opens(
    path: Path, moment: str, journal: str
) -> None:
    v1 = V1(path)
    for number in range(50):
        v1.job(f"job-{number}", spec_json=json.dumps("x" * 20_000))
        v1.event(f"job-{number}")
    v1.close()
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", journal)
    db.close()
    before = hashlib.sha256(path.read_bytes()).digest()
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(path), moment], timeout=100, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    if journal == "wal":
        assert hashlib.sha256(path.read_bytes()).digest() == before
    db = apsw.Connection(str(path))
    assert db.pragma("user_version") == 1
    assert read_objects(db) == expected_objects(1)
    db.close()
    with Store.open(path) as store:
        assert store.opening.upgraded_from == 1
        assert len(store.read.list_jobs("acme", limit=100)) == 50
        assert list(verify(path)) == []


OPENER = """
import sys
from rookhold_store import Store
print("ready", flush=True)
sys.stdin.readline()
with Store.open(sys.argv[1]) as store:
    print(store.opening.upgraded_from, len(store.read.list_jobs("acme", limit=100)))
"""


def test_of_processes_that_open_an_old_file_at_once_one_upgrades_it(path: Path) -> None:
    v1 = V1(path)
    for number in range(40):
        v1.job(f"job-{number}", spec_json=json.dumps("x" * 20_000))
    v1.close()
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for opener in openers:
        assert opener.stdout is not None
        assert opener.stdout.readline() == "ready\n"
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("go\n")
        opener.stdin.flush()
    said = sorted(opener.communicate(timeout=100)[0].strip() for opener in openers)
    assert said == ["1 40", "None 40", "None 40"]


def test_an_upgrade_says_from_which_version(v1: V1, caplog: pytest.LogCaptureFixture) -> None:
    v1.close()
    with caplog.at_level(logging.INFO, "rookhold_store"):
        Store.open(v1.path).close()
    assert "upgraded from schema version 1 to 4" in caplog.text


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    "spoil",
    [
        "ALTER TABLE jobs ADD COLUMN extra TEXT",
        "ALTER TABLE events DROP COLUMN kind",
        "DROP TABLE events",
        "CREATE TABLE job_attestations (job_id TEXT)",
        "PRAGMA user_version = 4",
        "PRAGMA user_version = 0",
    ],
)
def test_an_old_file_that_is_not_its_version_is_refused_unchanged(
    path: Path, version: int, spoil: str
) -> None:
    db = make_old(path, version)
    with unruled(db, version) if "kind" in spoil else db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute(spoil)
    db.close()
    before = path.read_bytes()
    with pytest.raises(OpenRefusedError):
        Store.open(path)
    assert path.read_bytes() == before


def test_governance_tables_come_through_an_upgrade_as_they_were(path: Path, source: Path) -> None:
    db = make_old(path, 2)
    copy_down(db, 2, source)
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("CREATE TABLE gov_migrations (version INTEGER PRIMARY KEY, applied_at_ms INTEGER)")
    db.execute("CREATE TABLE gov_run (job_id TEXT REFERENCES jobs (job_id) ON DELETE CASCADE)")
    db.execute("INSERT INTO gov_migrations VALUES (1, 0)")
    db.execute("INSERT INTO gov_run SELECT job_id FROM jobs WHERE finished_at_ms IS NOT NULL")
    before = db.execute("SELECT * FROM sqlite_schema WHERE name LIKE 'gov%' ORDER BY name")
    texts, runs = [row[4] for row in before], rows_of(path, "gov_run", "job_id, 1")
    db.close()
    with Store.open(path) as store:
        assert rows_of(path, "gov_run", "job_id, 1") == runs
        now = rows_of(path, "sqlite_schema WHERE name LIKE 'gov%'", "name, 1, sql")
        assert [row[2] for row in now] == texts
        while store.call(Sweep(now_ms=NOW * 100, age_ms=0)).jobs_deleted:
            pass
    assert rows_of(path, "gov_run", "job_id, 1") == []  # they went with their jobs


def test_rows_that_are_in_the_log_alone_are_upgraded_too(path: Path) -> None:
    db = make_old(path, 1)
    db.wal_autocheckpoint(0)
    insert(db, "jobs", job_id="job", **GOOD)
    names = (path, path.with_name(f"{path.name}-wal"))
    left = [name.read_bytes() for name in names]
    db.close()
    for name, content in zip(names, left, strict=True):
        name.write_bytes(content)
    with Store.open(path) as store:
        assert store.opening.upgraded_from == 1
        assert [row.job_id for row in store.read.list_jobs("acme")] == ["job"]


MANY = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
INSERT INTO jobs (job_id, tenant, language, status, created_at_ms, started_at_ms, finished_at_ms,
  exit_code, spec_json, receipt_json, admitted_mem_mb)
SELECT printf('job-%08d', i), 'tenant-' || (i % 50), 'python', 'succeeded', i, i + 1, i + 2, 0,
  json_object('code', hex(zeroblob(300))), json_object('receipt_sha256', hex(zeroblob(400))), 256
FROM n;
INSERT INTO events (job_id, seq, ts_ms, kind, data_json, event_hash, hash_version)
SELECT job_id, value, 1, 'own', json_object('pad', hex(zeroblob(60))),
  lower(hex(zeroblob(32))), 1 FROM jobs, json_each('[1,2,3,4,5]') ORDER BY 1, 2;
"""
MEASURED = """
import resource, sys, time
from rookhold_store import Store
used = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before, began = used(), time.process_time()
with Store.open(sys.argv[1]) as store:
    assert store.opening.upgraded_from == 3
    print(used() - before, time.process_time() - began)
"""


@pytest.mark.soak
def test_a_hundred_thousand_jobs_are_upgraded_in_seconds_and_bounded_memory(path: Path) -> None:
    db = make_old(path, 3)
    with unruled(db, 3):
        db.execute(MANY, {"count": 100_000})
        db.execute(
            "INSERT INTO job_storage_usage SELECT job_id, tenant, 1, 0, admitted_mem_mb FROM jobs"
        )
    db.close()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path)], capture_output=True, text=True, check=True
    )
    memory, seconds = map(float, done.stdout.split())
    assert memory < 192 * 1024 * 1024
    assert seconds < 60
    with Store.open(path) as store:
        assert findings(store._writer._db) == []
