"""For tests: a file with a row of every table, and hands that leave no trace in its schema."""

# every text that becomes part of a statement is from the schema of a test's file

from __future__ import annotations

import hashlib
import json
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import apsw

from rookhold_store.operations import Append, FailAttestation
from rookhold_store.store import Store
from rookhold_store.testing import Jobs, TickingClock
from rookhold_types.jobs import JobSpec
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SHA_A = hashlib.sha256(b"a").hexdigest()
ENVELOPE = json.dumps({"payload": "", "signatures": [{"keyid": "key-1", "sig": ""}]}).encode()


def binding(**given: object) -> bool:
    """Bind by the media type alone, so that an edit of it is found."""
    return given["media_type"] == "application/json"


class Made(NamedTuple):
    """One job in each place of a life."""

    path: Path
    attested: str
    pending: str
    waived: str
    hidden: str
    quarantined: str
    running: str
    queued: str


ARTIFACT = {
    "path": "output/a",
    "content_base64": "YQ==",
    "size_bytes": 1,
    "sha256": SHA_A,
}


def make(path: Path) -> Made:
    """Make the file; nothing in it was ever changed against the rules."""
    clock = TickingClock()
    with Store.open(path, binding=binding, clock=clock) as store:
        jobs = Jobs(store)
        attested = jobs.running(key="first", tenant="acme")
        jobs.append(attested, "one", "two")
        store.call(Append(job_id=attested, events=[("artifact", ARTIFACT)], now_ms=clock()))
        jobs.finalise(attested, effective_spec={"storage_version": 2}, receipt=_receipt())
        store.call(jobs.attestation(attested, envelope=ENVELOPE))
        pending = jobs.finished(tenant="acme", spec=JobSpec(language="bash", code="true"))
        waived = jobs.finished(tenant="other")
        store.call(FailAttestation(job_id=waived, code="too_large", now_ms=clock(), profile="1"))
        hidden = jobs.finished(tenant="other")
        quarantined = jobs.finished(tenant="third")
        made = Made(
            path,
            attested,
            pending,
            waived,
            hidden,
            quarantined,
            jobs.running(tenant="third"),
            jobs.accept(tenant="third", key="waits"),
        )
        jobs.finalise(jobs.running(), status=JobStatus.TIMED_OUT, exit_code=None)
    with closing(apsw.Connection(str(path))) as db:
        _hide(db, hidden)
        _quarantine(db, quarantined)
    return made


def _receipt() -> dict[str, object]:
    file = {name: ARTIFACT[name] for name in ("path", "size_bytes", "sha256")}
    return {"killed_by": None, "artifacts": [file]}


def _hide(db: apsw.Connection, job_id: str) -> None:
    """Do what a retention pass does to a job that is too large for one."""
    db.execute("INSERT INTO retention_tombstones VALUES (?, 5)", (job_id,))
    lost = db.execute(
        "SELECT sum(64 + octet_length(kind) + octet_length(data_json) + octet_length(prev_hash)"
        " + octet_length(event_hash)) FROM events WHERE job_id = ? AND seq > 2",
        (job_id,),
    ).get
    lost += db.execute(
        "SELECT octet_length(receipt_json) FROM jobs WHERE job_id = ?", (job_id,)
    ).get
    db.execute("DELETE FROM events WHERE job_id = ? AND seq > 2", (job_id,))
    db.execute("UPDATE jobs SET receipt_json = NULL WHERE job_id = ?", (job_id,))
    _charge(db, job_id, -lost)


def _quarantine(db: apsw.Connection, job_id: str) -> None:
    db.execute(
        "INSERT INTO attestation_quarantine VALUES (?, 7, 'unbound', ?, ?, x'61', x'62')",
        (
            job_id,
            SHA_A,
            hashlib.sha256(b"b").hexdigest(),
        ),
    )
    _charge(db, job_id, 64 + len(job_id) + len("unbound") + 1 + 64 + 1 + 64)


def _charge(db: apsw.Connection, job_id: str, by: int) -> None:
    db.execute(
        "UPDATE job_storage_usage SET retained_bytes = retained_bytes + ? WHERE job_id = ?",
        (by, job_id),
    )


@contextmanager
def unguarded(path: Path) -> Iterator[apsw.Connection]:
    """Lend a connection that nothing refuses anything, and put the schema back word by word."""
    with closing(apsw.Connection(str(path))) as db:
        db.execute("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF")
        triggers = db.execute(
            "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
        ).fetchall()
        for name, _ in triggers:
            db.execute(f"DROP TRIGGER {name}")
        yield db
        for _, text in triggers:
            db.execute(str(text))


@contextmanager
def untyped(path: Path, table: str) -> Iterator[apsw.Connection]:
    """The same, with a table that takes any type meanwhile."""
    with unguarded(path) as db:
        text = db.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).get
        loose = text.replace(" STRICT, WITHOUT", " WITHOUT").replace(") STRICT", ")")
        for kind in (" TEXT", " INTEGER", " BLOB"):
            loose = loose.replace(f"{kind} NOT NULL", "").replace(kind, "")
        loose = loose.replace("  id PRIMARY KEY", "  id INTEGER PRIMARY KEY")
        loose = loose.replace("version PRIMARY KEY", "version INTEGER PRIMARY KEY")
        _rewrite(db, table, loose)
        yield db
        _rewrite(db, table, text)


def _rewrite(db: apsw.Connection, table: str, text: str) -> None:
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (text, table))
    db.execute("PRAGMA writable_schema = RESET")
