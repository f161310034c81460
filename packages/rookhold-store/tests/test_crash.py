"""A process that dies while it writes, and what its file says afterwards."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rookhold_store import RecoverRunning, Store
from rookhold_store.accounting import findings
from rookhold_store.testing import tampering_connection
from rookhold_types.events import check_chain
from rookhold_types.receipts import receipt_digest

# Says what was answered, after the answer; so whatever it said must be in the file for ever.
SCRIPT = """
import sys, threading
from rookhold_store import Store
from rookhold_store.testing import Jobs, anything_binds
store = Store.open(sys.argv[1], binding=anything_binds)
jobs = Jobs(store)
lock = threading.Lock()
def say(*words):
    with lock:
        print(*words, flush=True)
def client(number):
    turn = 0
    while True:
        turn += 1
        job_id = jobs.accept(tenant=f"t{number}", key=f"{number}-{turn}")
        say("accepted", job_id)
        if turn % 4 == 0:
            continue
        jobs.start(job_id)
        say("started", job_id)
        jobs.append(job_id, *["line"] * (turn % 50))
        if turn % 4 == 1:
            continue
        jobs.finalise(job_id)
        say("finished", job_id)
        if turn % 4 == 2:
            store.call(jobs.attestation(job_id))
            say("signed", job_id)
for number in range(6):
    threading.Thread(target=client, args=(number,), daemon=True).start()
threading.Event().wait()
"""


def kill_after(path: Path, answers: int) -> dict[str, set[str]]:
    said: dict[str, set[str]] = {
        "accepted": set(),
        "started": set(),
        "finished": set(),
        "signed": set(),
    }
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for _ in range(answers):
            word, job_id = child.stdout.readline().split()
            said[word].add(job_id)
        child.kill()
        # Complete lines that were already in the pipe are answers too.
        for line in child.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                word, job_id = line.split()
                said[word].add(job_id)
    return said


@pytest.mark.parametrize("answers", [60, 200, 500])
def test_a_killed_writer_loses_nothing_it_answered_and_leaves_nothing_half_done(
    tmp_path: Path, answers: int
) -> None:
    path = tmp_path / "state" / "jobs.db"
    said = kill_after(path, answers)
    assert said["accepted"]
    with Store.open(path) as store:
        for job_id in store.read.running_ids(100_000):
            assert store.call(RecoverRunning(job_id=job_id, now_ms=store.clock())) is not None
        db = tampering_connection(path)
        rows: Any = db.execute("SELECT job_id, status FROM jobs")
        stored: dict[str, str] = dict(rows)
        assert findings(db) == []
        assert db.execute("PRAGMA integrity_check").get == "ok"
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        db.close()
        assert said["accepted"] <= stored.keys()
        assert all(stored[job_id] != "queued" for job_id in said["started"])
        assert all(stored[job_id] == "succeeded" for job_id in said["finished"])
        assert all(store.read.attestation(None, job_id) for job_id in said["signed"])
        for job_id, status in stored.items():
            events = store.read.events_after(job_id, 0, 5000)
            chain = check_chain(job_id, events)
            assert chain.complete
            ends = [event.kind for event in events].count("finished")
            assert ends == (status != "queued")
            row = store.read.get(None, job_id)
            assert row is not None
            if status != "queued":
                receipt = json.loads(row.receipt_json or "")
                assert receipt["receipt_sha256"] == receipt_digest(receipt)
                assert receipt["event_chain"] == chain.receipt_member()
                signed = store.read.attestation_status(None, job_id) is not None
                assert signed != (store.read.outbox(job_id) is not None)
