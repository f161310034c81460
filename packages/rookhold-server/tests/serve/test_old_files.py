"""A server over a database that an older one made, or that it must not touch."""

import json
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from rookhold_attestation import Policy, PrivateKey, PublicKey, verify_envelope
from rookhold_store import Store
from rookhold_store.testing import Jobs, anything_binds
from rookhold_store.testing.lineage import copy_down, insert, make_old
from rookhold_types.ids import new_job_id

Server = Callable[..., Any]


def database(process: Any) -> Path:
    directory: Path = process.home / "old"
    directory.mkdir(mode=0o700, exist_ok=True)
    process.environment["ROOKHOLD_DB"] = str(directory / "jobs.db")
    return directory / "jobs.db"


@pytest.fixture
def awkward(server: Server) -> tuple[Any, dict[str, str]]:
    """A server whose database is of version 1, with rows as they should not be."""
    prepared = server()
    ids = {name: new_job_id() for name in ("sound", "spec", "times", "running", "queued")}
    now = int(time.time() * 1000)  # of the past, they would be swept at once
    sound = {
        "tenant": "acme",
        "language": "bash",
        "status": "failed",
        "exit_code": 2,
        "created_at_ms": now,
        "started_at_ms": now + 1,
        "finished_at_ms": now + 2,
        "spec_json": '{"language":"bash","code":"exit 2"}',
    }
    with closing(make_old(database(prepared), 1)) as db:
        for name, changes in {
            "sound": {},
            "spec": {"spec_json": "#!/bin/sh"},
            "times": {"created_at_ms": "then", "finished_at_ms": None},
            "running": {"status": "running", "finished_at_ms": None},
            "queued": {"status": "queued"},
        }.items():
            insert(db, "jobs", job_id=ids[name], **{**sound, **changes})
            for seq, data in enumerate(('{"status":"queued"}', "not JSON"), 1):
                insert(
                    db, "events", job_id=ids[name], seq=seq, ts_ms=1, kind="stdout", data_json=data
                )
    return prepared, ids


def test_a_version_1_database_is_upgraded_which_is_said_and_all_of_it_is_served(
    awkward: tuple[Any, dict[str, str]],
) -> None:
    prepared, ids = awkward
    running = prepared.start()
    assert "upgraded from schema version 1 to 4" in running.log
    end = time.monotonic() + 60
    while time.monotonic() < end:
        items = running.call("GET", "/v1/jobs")[1]["items"]
        status = {item["job_id"]: item["status"] for item in items}
        if not {"queued", "running"} & set(status.values()):
            break
        time.sleep(0.05)
    assert status.keys() == set(ids.values())
    assert status[ids["running"]] == "error"  # its server is gone
    assert status[ids["queued"]] == "failed"  # it was run now
    for job_id in ids.values():
        for path in ("", "/replay", "/result"):
            code, body = running.call("GET", f"/v1/jobs/{job_id}{path}")
            assert code < 500, (path, body)
    history = running.call("GET", f"/v1/jobs/{ids['sound']}/replay")[1]
    assert running.stop() == 0
    assert "Traceback" not in running.log
    again = prepared.start()
    assert again.log.count("upgraded from schema version") == 1
    assert history == again.call("GET", f"/v1/jobs/{ids['sound']}/replay")[1]


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        ("PRAGMA user_version = 9", "schema_version"),
        ("PRAGMA user_version = 2", "schema_history"),
        ("ALTER TABLE jobs DROP COLUMN exit_code", "schema_mismatch"),
        ("INSERT INTO events (job_id, seq) VALUES ('nobody', 1)", "migration_refused"),
    ],
)
def test_a_database_that_cannot_be_opened_stops_the_start_with_code_and_advice(
    server: Server, spoil: str, code: str
) -> None:
    refused = server()
    path = database(refused)
    with closing(make_old(path, 1)) as db:
        db.execute(spoil)
    before = path.read_bytes()
    assert refused.run() == 1
    assert f"code={code}" in refused.log
    assert "refused to start" in refused.log
    assert "backup" in refused.log or "nothing was changed" in refused.log
    assert "Traceback" not in refused.log
    assert str(refused.home) not in refused.log
    assert path.read_bytes() == before


def test_another_programs_database_stops_the_start(server: Server) -> None:
    refused = server()
    path = database(refused)
    with closing(apsw.Connection(str(path))) as db:
        db.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY); PRAGMA user_version = 4")
    before = path.read_bytes()
    assert refused.run() == 1
    assert "code=foreign_schema" in refused.log
    assert path.read_bytes() == before


def test_a2_an_unbound_attestation_is_not_advertised_until_new_verifiable_bytes_are_made(
    server: Server,
) -> None:
    prepared = server()
    path = database(prepared)
    newer = path.with_name("newer.db")
    with Store.open(newer, binding=anything_binds) as store:
        jobs = Jobs(store)
        job_id = jobs.finished(tenant="acme")
        store.call(jobs.attestation(job_id))
    with closing(make_old(path, 4)) as db:
        copy_down(db, 4, newer)
    newer.unlink()
    unsigned = prepared.start()
    assert unsigned.call("GET", f"/v1/jobs/{job_id}/attestation")[0] in (404, 503)
    detail = unsigned.call("GET", f"/v1/jobs/{job_id}")[1]
    assert detail["attestation"]["available"] is False
    assert unsigned.stop() == 0
    assert "quarantine" in unsigned.log

    key_file = prepared.home / "key.pem"
    PrivateKey.generate().save(key_file)
    prepared.environment["ROOKHOLD_ATTESTATION_KEY_FILE"] = str(key_file)
    signing = prepared.start()
    status, envelope = signing.call("GET", f"/v1/jobs/{job_id}/attestation?wait_seconds=30")
    assert status == 200
    artifact = signing.call("GET", f"/v1/jobs/{job_id}/result-artifact")[1]
    public = signing.call("GET", "/v1/attestation/public-key")[1]
    sent = json.dumps(envelope).encode()
    assert sent != b"envelope of " + job_id.encode()
    verify_envelope(
        sent,
        artifact=json.dumps(artifact, separators=(",", ":"), ensure_ascii=False).encode(),
        keys=[PublicKey.from_pem(public["public_key_pem"])],
        policy=Policy(tenant="acme"),
    )
    assert signing.stop() == 0
    with closing(apsw.Connection(str(path))) as db:
        kept = db.execute("SELECT job_id, envelope_json FROM attestation_quarantine").fetchall()
    assert kept == [(job_id, b"envelope of " + job_id.encode())]
