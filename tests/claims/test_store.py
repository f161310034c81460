"""What the store shows of an edit of its file, and what it keeps for itself."""

from __future__ import annotations

import json
import os
import shutil
import stat
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

import apsw
import pytest

from rookhold_store import Cursor, Store
from rookhold_store.schema import expected_objects
from rookhold_store.testing import Jobs, anything_binds
from rookhold_store.verify import Kept, verify
from rookhold_types.canonical import canonical
from rookhold_types.events import check_chain, event_hash
from rookhold_types.receipts import receipt_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

FORBIDDEN: Final = (
    "UPDATE events SET data_json = '{}' WHERE job_id = ?",
    "DELETE FROM events WHERE job_id = ? AND seq = 4",
    "UPDATE jobs SET receipt_json = '{}' WHERE job_id = ?",
    "UPDATE idempotency_keys SET created_at_ms = 1 WHERE job_id = ?",
    "DELETE FROM idempotency_keys WHERE job_id = ?",
    "UPDATE job_attestations SET envelope_json = x'00' WHERE job_id = ?",
    "DELETE FROM job_attestations WHERE job_id = ?",
)
# Where a byte is changed, and how it is written back.
CHANGED: Final = {
    "events.data_json": "json_set(data_json, '$.line', '43')",
    "events.ts_ms": "ts_ms + 1",
    "jobs.receipt_json": "json_set(receipt_json, '$.exit_code', 1)",
    "job_attestations.result_artifact": "CAST('x' || result_artifact AS BLOB)",
    "job_attestations.envelope_json": "CAST('x' || envelope_json AS BLOB)",
    "job_storage_usage.retained_bytes": "retained_bytes + 1",
}


@contextmanager
def stored(home: Path) -> Iterator[tuple[Store, str]]:
    """Open a store with a finished job of four events, a key and an attestation."""
    with Store.open(home / "state" / "jobs.db", binding=anything_binds) as store:
        jobs = Jobs(store)
        job_id = jobs.finished(key="k")
        store.call(jobs.attestation(job_id))
        jobs.finished()
        yield store, job_id


@contextmanager
def unguarded(path: Path) -> Iterator[apsw.Connection]:
    """Lend the file as to somebody who takes its triggers away, and puts them back afterwards."""
    with closing(apsw.Connection(str(path))) as db:
        db.set_busy_timeout(60_000)
        db.execute("BEGIN IMMEDIATE")
        triggers = {name: it.sql for name, it in expected_objects().items() if it.kind == "trigger"}
        for name in triggers:
            db.execute(f"DROP TRIGGER {name}")
        yield db
        for sql in triggers.values():
            db.execute(sql or "")
        db.execute("COMMIT")


def check_edit_refused(home: Path, *, guarded: bool) -> None:
    for statement in FORBIDDEN:
        place = home / str(FORBIDDEN.index(statement))
        with stored(place) as (store, job_id), closing(apsw.Connection(str(store.path))) as db:
            if not guarded:
                for name, it in expected_objects().items():
                    if it.kind == "trigger":
                        db.execute(f"DROP TRIGGER {name}")
            try:
                db.execute(statement, (job_id,))
            except apsw.ConstraintError:
                continue
        raise AssertionError("an edit went through")


def check_change_named(home: Path, *, changed: bool) -> None:
    for number, (place, new) in enumerate(CHANGED.items()):
        table, column = place.split(".")
        which = "AND seq = 3" if table == "events" else ""
        with stored(home / str(number)) as (store, job_id):
            with unguarded(store.path) as db:
                value = new if changed else column
                db.execute(
                    f"UPDATE {table} SET {column} = {value} WHERE job_id = ? {which}", (job_id,)
                )
            found = list(verify(store.path, binding=anything_binds))
        named = [item for item in found if item.job_id == job_id and item.place.startswith(table)]
        assert named, "nothing was found"
        if table == "events":
            assert named[0].seq == 3


def cut_and_seal_anew(db: apsw.Connection, job_id: str) -> None:
    """Take the output out of a history, and make all the rest of the record say the same."""
    rows: list[Any] = db.execute(
        "SELECT ts_ms, kind, data_json, hash_version FROM events WHERE job_id = ? AND seq <> 3 "
        "ORDER BY seq",
        (job_id,),
    ).fetchall()
    db.execute("DELETE FROM events WHERE job_id = ?", (job_id,))
    db.execute("DELETE FROM job_attestations WHERE job_id = ?", (job_id,))
    link = ""
    for seq, (ts_ms, kind, data_json, version) in enumerate(rows, 1):
        made = event_hash(job_id, link, seq, ts_ms, kind, data_json.encode())
        row = (job_id, seq, ts_ms, kind, data_json, link, made, version)
        db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        link = made
    text = db.execute("SELECT receipt_json FROM jobs WHERE job_id = ?", (job_id,)).get
    receipt = json.loads(text)
    receipt["event_chain"] |= {"head": link, "events": len(rows), "event_count": len(rows)}
    receipt["event_chain"]["verified_events"] = len(rows)
    receipt["receipt_sha256"] = receipt_digest(receipt)
    sealed = canonical(receipt).decode()
    db.execute("UPDATE jobs SET receipt_json = ? WHERE job_id = ?", (sealed, job_id))


def check_rewriting_found(home: Path, *, kept: bool) -> None:
    with stored(home) as (store, job_id):
        row = store.read.get(None, job_id)
        assert row is not None
        receipt = json.loads(row.receipt_json or "")
        with unguarded(store.path) as db:
            cut_and_seal_anew(db, job_id)
        assert check_chain(job_id, store.read.events_after(job_id)).complete, "it is sound"
        chain = receipt["event_chain"]
        remembered = Kept(
            job_id=job_id,
            seq=chain["events"],
            head=chain["head"],
            receipt_sha256=receipt["receipt_sha256"],
        )
        receipts = [remembered] if kept else []
        found = list(verify(store.path, binding=anything_binds, receipts=receipts))
        assert [item for item in found if item.kept], "what was rewritten was not found"


def check_private(home: Path, change: Callable[[Path], None]) -> None:
    before = os.umask(0)
    try:
        with stored(home) as (store, _):
            change(store.path)
            held = sorted(store.path.parent.iterdir())
            modes = {stat.S_IMODE(file.lstat().st_mode) for file in held}
            assert [file.name for file in held] == ["jobs.db", "jobs.db-shm", "jobs.db-wal"]
            assert stat.S_IMODE(store.path.parent.lstat().st_mode) == 0o700
            assert modes == {0o600}, "others may read it"
    finally:
        os.umask(before)


def check_acknowledged(home: Path, *files: str) -> None:
    """Copy what is on the disk at this moment, as it is when the power goes, and open that."""
    left = home / "left"
    left.mkdir(mode=0o700)
    with stored(home) as (store, _):
        promised = [Jobs(store).accept() for _ in range(20)]
        for suffix in files:
            shutil.copyfile(f"{store.path}{suffix}", left / f"jobs.db{suffix}")
    with Store.open(left / "jobs.db") as store:
        there = {row.job_id for row in store.read.queued_page(Cursor(0, ""), 1024)}
    assert set(promised) <= there, "an accepted job is gone"


def test_ordinary_edit_refused(tmp_path: Path) -> None:
    check_edit_refused(tmp_path, guarded=True)


def test_ordinary_edit_refused_sabotaged(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="an edit went through"):
        check_edit_refused(tmp_path, guarded=False)


def test_change_in_store_named(tmp_path: Path) -> None:
    check_change_named(tmp_path, changed=True)


def test_change_in_store_named_sabotaged(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="nothing was found"):
        check_change_named(tmp_path, changed=False)


def test_rewritten_history_found(tmp_path: Path) -> None:
    check_rewriting_found(tmp_path, kept=True)


def test_rewritten_history_found_sabotaged(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="what was rewritten was not found"):
        check_rewriting_found(tmp_path, kept=False)


def test_database_is_private(tmp_path: Path) -> None:
    check_private(tmp_path, lambda path: None)


def test_database_is_private_sabotaged(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="others may read it"):
        check_private(tmp_path, lambda path: path.chmod(0o644))


def test_acknowledged_is_kept(tmp_path: Path) -> None:
    check_acknowledged(tmp_path, "", "-wal")


def test_acknowledged_is_kept_sabotaged(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="an accepted job is gone"):
        check_acknowledged(tmp_path, "")  # what every commit waits for is the log
