"""Whole lives of jobs on a disk that may fail, with a memory of what was promised, for tests."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from rookhold_store import CancelQueued, DeferAttestation, ProveWritable, RecoverRunning, Store
from rookhold_store.accounting import findings
from rookhold_store.errors import JobNotFoundError, StorageUnavailableError
from rookhold_store.testing import Jobs, anything_binds, tampering_connection
from rookhold_store.verify import verify
from rookhold_types.events import check_chain
from rookhold_types.ids import new_job_id
from rookhold_types.receipts import receipt_digest

LINES = ("line " * 200,) * 6
# How far a job has come; what an answer says is never taken back.
RANK = {
    "absent": 0,
    "queued": 1,
    "running": 2,
    "cancelled": 3,
    "error": 3,
    "succeeded": 3,
    "signed": 4,
}


class Life:
    """What callers were told. Of what failed, both outcomes are right, and nothing in between."""

    def __init__(self) -> None:
        self.promised: dict[str, str] = {}  # job -> the furthest state that was answered
        self.lines: dict[str, int] = {}  # job -> output records that were answered
        self.failed = 0
        self.wrong: list[str] = []

    def run(self, store: Store, jobs: Jobs) -> None:
        """Take jobs through all that can happen to one; a failure ends a job's part of it."""
        first = self._accept(jobs, new_job_id())
        self._begin(jobs, first)
        self._append(jobs, first)
        self._append(jobs, first)
        self._finish(jobs, first)
        self._sign(store, jobs, first)
        second = self._accept(jobs, None)
        cancel = CancelQueued(tenant="acme", job_id=second, now_ms=jobs.store.clock())
        if self._try(lambda: store.call(cancel)) is not None:
            self.promised[second] = "cancelled"
        third = self._accept(jobs, new_job_id())
        self._begin(jobs, third)
        self._append(jobs, third)
        self._try(lambda: store.call(DeferAttestation(job_id=third, now_ms=1, delay_ms=1000)))
        self._try(lambda: store.call(ProveWritable()))
        self._read(store)

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except StorageUnavailableError:  # nothing else may come of a bad disk
            self.failed += 1
            return None

    def _accept(self, jobs: Jobs, key: str | None) -> str:
        job_id = new_job_id()
        if self._try(lambda: jobs.submit(jobs.acceptance(job_id=job_id, key=key))) is not None:
            self.promised[job_id] = "queued"
        return job_id

    def _begin(self, jobs: Jobs, job_id: str) -> None:
        if self._try(lambda: jobs.start(job_id)) is not None:
            self.promised[job_id] = "running"

    def _append(self, jobs: Jobs, job_id: str) -> None:
        try:
            done = self._try(lambda: jobs.append(job_id, *LINES))
        except JobNotFoundError:
            if job_id in self.promised:
                self.wrong.append(f"{job_id}: an accepted job is not found")
            return
        if done:
            self.lines[job_id] = self.lines.get(job_id, 0) + len(done)

    def _finish(self, jobs: Jobs, job_id: str) -> None:
        if self._try(lambda: jobs.finalise(job_id)) is not None:
            self.promised[job_id] = "succeeded"

    def _sign(self, store: Store, jobs: Jobs, job_id: str) -> None:
        if self.promised.get(job_id) != "succeeded":
            return
        op = self._try(lambda: jobs.attestation(job_id))
        if op is not None and self._try(lambda: store.call(op)) is not None:
            self.promised[job_id] = "signed"

    def _read(self, store: Store) -> None:
        """What readers say is right, or that they cannot read."""
        for job_id in self.promised:
            self._try(lambda job_id=job_id: self._present(job_id, store.read.get("acme", job_id)))
            self._try(
                lambda job_id=job_id: self._present(job_id, store.read.replay("acme", job_id))
            )
        listed = self._try(lambda: store.read.list_jobs("acme"))
        if listed is not None and not self.promised.keys() <= {row.job_id for row in listed}:
            self.wrong.append(f"the list has {len(listed)} of {len(self.promised)} jobs")

    def _present(self, job_id: str, found: object) -> None:
        if found is None:
            self.wrong.append(f"{job_id}: a reader says that there is no such job")

    def problems(self, path: Path) -> list[str]:
        """Say what is wrong with the file now, by these promises and by its own."""
        db = tampering_connection(path)
        try:
            found = [*self.wrong, *map(repr, findings(db))]
            found += map(repr, verify(path, binding=anything_binds))
            if (said := db.execute("PRAGMA integrity_check").get) != "ok":
                found.append(f"SQLite says {said}")
            if db.execute("PRAGMA foreign_key_check").fetchall():
                found.append("foreign keys are broken")
            for job_id, promised in self.promised.items():
                state = _state(db, job_id)
                if RANK[state] < RANK[promised] or (RANK[promised] == 3 and state == "error"):
                    found.append(f"{job_id}: {state}, although {promised} was said")
        finally:
            db.close()
        return found + self._histories(path)

    def _histories(self, path: Path) -> list[str]:
        found = []
        with Store.open(path, binding=anything_binds) as store:
            for row in store.read.list_jobs("acme"):
                job_id = row.job_id
                events = store.read.events_after(job_id, 0, 5000)
                chain = check_chain(job_id, events)
                if not chain.complete:
                    found.append(f"{job_id}: the chain does not hold")
                kept = sum(event.kind == "stdout" for event in events)
                if kept < self.lines.get(job_id, 0) or kept % len(LINES):
                    found.append(f"{job_id}: {kept} records are kept")
                whole = store.read.get(None, job_id)
                assert whole is not None
                if row.terminal:
                    receipt = json.loads(whole.receipt_json or "")
                    if receipt["receipt_sha256"] != receipt_digest(receipt):
                        found.append(f"{job_id}: the receipt does not hold")
                    if receipt["event_chain"] != chain.receipt_member():
                        found.append(f"{job_id}: the receipt is of another history")
        return found


def _state(db: apsw.Connection, job_id: str) -> str:
    status = db.execute("SELECT status FROM jobs WHERE job_id = ?", (job_id,)).get
    signed = db.execute("SELECT 1 FROM job_attestations WHERE job_id = ?", (job_id,)).get
    return "signed" if signed else str(status or "absent")


def close_running(store: Store) -> None:
    """End what an earlier life left running."""
    for job_id in store.read.running_ids(100_000):
        assert store.call(RecoverRunning(job_id=job_id, now_ms=store.clock())) is not None
