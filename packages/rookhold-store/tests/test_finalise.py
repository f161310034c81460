import base64
import hashlib
import json
from typing import Any

import apsw
import pytest

from rookhold_store import (
    CancelQueued,
    Finalise,
    InvalidOperationError,
    JobEndedError,
    Participation,
    RecordRefusedError,
    RecoverRunning,
    Store,
    accounting,
)
from rookhold_store.evidence import queued_cancel, restart
from rookhold_store.testing import Jobs
from rookhold_types.canonical import canonical, canonical_sha256
from rookhold_types.errors import CanonicalError
from rookhold_types.events import check_chain
from rookhold_types.jobs import JobFile, JobSpec
from rookhold_types.limits import Limits
from rookhold_types.receipts import receipt_digest
from rookhold_types.states import JobStatus

EMPTY = hashlib.sha256(b"").hexdigest()
LIE: dict[str, Any] = {
    "version": 99,
    "job_id": "another",
    "outcome": "failed",
    "exit_code": 1,
    "created_at_ms": 1,
    "started_at_ms": 2,
    "finished_at_ms": 3,
    "duration_ms": 4,
    "event_chain": {"complete": False},
    "receipt_sha256": "0" * 64,
    "killed_by": None,
    "novel": {"kept": [1, "é"]},
}


def receipt_of(store: Store, job_id: str) -> dict[str, Any]:
    with store.read._use() as db:
        text = db.execute("SELECT receipt_json FROM jobs WHERE job_id = ?", (job_id,)).get
    receipt: dict[str, Any] = json.loads(text)
    assert text.encode() == canonical(receipt)
    assert receipt["receipt_sha256"] == receipt_digest(receipt)
    return receipt


def test_the_stores_own_facts_win_over_a_lying_receipt(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    answer = jobs.finalise(job_id, receipt=LIE)
    assert answer is not None
    row = store.read.get("acme", job_id)
    events = store.read.events_after(job_id)
    chain = check_chain(job_id, events)
    assert row is not None
    assert [event.kind for event in events] == ["accepted", "started", "finished"]
    assert chain.complete
    receipt = receipt_of(store, job_id)
    assert receipt == {
        "version": 1,
        "job_id": job_id,
        "outcome": "succeeded",
        "exit_code": 0,
        "created_at_ms": row.created_at_ms,
        "started_at_ms": row.started_at_ms,
        "finished_at_ms": row.finished_at_ms,
        "duration_ms": 7,
        "event_chain": chain.receipt_member(),
        "receipt_sha256": answer.receipt_sha256,
        "killed_by": None,
        "novel": {"kept": [1, "é"]},
    }
    assert receipt["event_chain"]["head"] == answer.event.event_hash
    assert answer.event.data == {"status": "succeeded", "exit_code": 0, "duration_ms": 7}


def test_a_job_ends_once(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    assert jobs.finalise(job_id, status=JobStatus.FAILED, exit_code=3) is not None
    assert jobs.finalise(job_id) is None
    assert jobs.finalise("unknown") is None
    with pytest.raises(JobEndedError):
        jobs.append(job_id, "late")
    row = store.read.get("acme", job_id)
    assert row is not None
    assert (row.status, row.exit_code) == ("failed", 3)
    assert [event.kind for event in store.read.events_after(job_id)].count("finished") == 1


def test_the_last_events_come_with_the_ending_in_one_chain(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    jobs.append(job_id, "early")
    answer = store.call(ending(job_id, [("stdout", {"line": "late", "eol": True})]))
    assert answer is not None
    events = store.read.events_after(job_id)
    assert [event.kind for event in events[2:]] == ["stdout", "stdout", "finished"]
    assert (*answer.events, answer.event) == events[3:]
    chain = check_chain(job_id, events)
    assert receipt_of(store, job_id)["event_chain"] == chain.receipt_member()
    with store.read._use() as db:
        assert list(accounting.findings(db)) == []


@pytest.mark.parametrize("kind", ["accepted", "started", "finished"])
def test_an_ending_brings_no_events_of_the_stores_own_kinds(
    store: Store, jobs: Jobs, kind: str
) -> None:
    job_id = jobs.running()
    with pytest.raises(InvalidOperationError):
        store.call(ending(job_id, [(kind, {})]))
    with pytest.raises(InvalidOperationError):
        store.call(ending(job_id, [("stdout", {"line": "", "eol": True})] * 257))
    row = store.read.summary("acme", job_id)
    assert row is not None
    assert not row.terminal
    assert store.read.last_seq(job_id) == 2


def test_an_ending_that_comes_too_late_leaves_no_events(store: Store, jobs: Jobs) -> None:
    job_id = jobs.finished()
    assert store.call(ending(job_id, [("stdout", {"line": "late", "eol": True})])) is None
    assert store.read.events_after(job_id)[-1].kind == "finished"


def ending(job_id: str, events: list[tuple[str, dict[str, Any]]]) -> Finalise:
    return Finalise(
        job_id=job_id,
        status=JobStatus.SUCCEEDED,
        exit_code=0,
        now_ms=2_000_000,
        duration_ms=7,
        receipt={"killed_by": None},
        events=events,
    )


def test_of_two_racing_endings_one_wins(store: Store, jobs: Jobs) -> None:
    job_id = jobs.accept()
    cancel = store.submit(CancelQueued(tenant="acme", job_id=job_id, now_ms=store.clock()))
    late = jobs.finalise(job_id, status=JobStatus.ERROR, exit_code=None)
    assert [cancel.result(timeout=30) is None, late is None].count(True) == 1
    assert store.read.last_seq(job_id) == 2


def test_the_observed_spec_replaces_the_placeholder(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    observed = {"storage_version": 2, "limits": {"mem_mb": 64}, "isolation_class": None}
    answer = jobs.finalise(job_id, effective_spec=observed)
    row = store.read.get("acme", job_id)
    assert answer is not None
    assert row is not None
    assert row.effective_spec_json is not None
    assert row.effective_spec_json.encode() == canonical(observed)
    assert answer.event.data["effective_spec_sha256"] == canonical_sha256(observed)
    started = store.read.events_after(job_id)[1]
    assert started.data["initial_effective_spec_sha256"] != canonical_sha256(observed)


def test_without_evidence_the_placeholder_stays(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    before = store.read.get("acme", job_id)
    answer = jobs.finalise(job_id)
    after = store.read.get("acme", job_id)
    assert before is not None
    assert after is not None
    assert answer is not None
    assert after.effective_spec_json == before.effective_spec_json
    assert "effective_spec_sha256" not in answer.event.data


@pytest.mark.parametrize("receipt", [["a", "list"], "text", 5, True], ids=str)
def test_a_receipt_that_is_no_object_is_kept_as_details(
    store: Store, jobs: Jobs, receipt: object
) -> None:
    job_id = jobs.running()
    jobs.finalise(job_id, receipt=receipt)
    assert receipt_of(store, job_id)["details"] == receipt


@pytest.mark.parametrize("status", [JobStatus.QUEUED, JobStatus.RUNNING, "gone"])
def test_a_job_does_not_end_with_a_status_that_is_not_terminal(
    store: Store, jobs: Jobs, status: JobStatus
) -> None:
    job_id = jobs.running()
    with pytest.raises(InvalidOperationError):
        jobs.finalise(job_id, status=status)
    assert store.read.running_ids() == (job_id,)


@pytest.mark.parametrize("exit_code", [2**31, -(2**31) - 1])
def test_an_exit_code_beyond_32_bits_is_refused(jobs: Jobs, exit_code: int) -> None:
    with pytest.raises(InvalidOperationError):
        jobs.finalise(jobs.running(), exit_code=exit_code)


@pytest.mark.parametrize("status", sorted(set(JobStatus) - {"queued", "running"}))
def test_every_terminal_status_can_be_stored(store: Store, jobs: Jobs, status: JobStatus) -> None:
    job_id = jobs.running()
    jobs.finalise(job_id, status=status, exit_code=-(2**31))
    assert receipt_of(store, job_id)["outcome"] == status
    assert store.read.list_jobs("acme", status=status)[0].exit_code == -(2**31)


def test_a_cancelled_queued_job_gets_the_receipt_of_one_that_never_ran(
    store: Store, jobs: Jobs
) -> None:
    content = b"\x00input"
    spec = JobSpec(
        language="bash",
        code="cat",
        limits=Limits(wall_seconds=9000),
        files=(JobFile(path="input/a", content_base64=base64.b64encode(content).decode()),),
    )
    job_id = jobs.accept(spec=spec)
    answer = store.call(CancelQueued(tenant="acme", job_id=job_id, now_ms=store.clock()))
    assert answer is not None
    receipt = receipt_of(store, job_id)
    row = store.read.get("acme", job_id)
    assert row is not None
    assert [event.kind for event in store.read.events_after(job_id)] == ["accepted", "finished"]
    assert receipt == {
        "version": 1,
        "job_id": job_id,
        "outcome": "cancelled",
        "exit_code": None,
        "killed_by": "cancelled_before_start",
        "created_at_ms": row.created_at_ms,
        "started_at_ms": None,
        "finished_at_ms": row.finished_at_ms,
        "duration_ms": 0,
        "evidence_complete": True,
        "requested_limits": spec.stored()["limits"],
        "requirements": {"minimum_isolation": "none"},
        "code_sha256": hashlib.sha256(b"cat").hexdigest(),
        "stdin_sha256": EMPTY,
        "resource_usage": None,
        "executor_output": None,
        "output": {
            "encoding": "utf8-records-with-eol",
            "stdout_bytes": 0,
            "stderr_bytes": 0,
            "stdout_sha256": EMPTY,
            "stderr_sha256": EMPTY,
            "stdout_bytes_seen": None,
            "stderr_bytes_seen": None,
            "stdout_seen_sha256": None,
            "stderr_seen_sha256": None,
            "truncated": False,
        },
        "input_files": [
            {"path": "input/a", "size_bytes": 6, "sha256": hashlib.sha256(content).hexdigest()}
        ],
        "artifacts": [],
        "event_chain": check_chain(job_id, store.read.events_after(job_id)).receipt_member(),
        "receipt_sha256": answer.receipt_sha256,
    }


def test_a_foreign_running_or_ended_job_is_not_cancelled_as_queued(
    store: Store, jobs: Jobs
) -> None:
    queued, running, ended = jobs.accept(), jobs.running(), jobs.finished()
    for tenant, job_id in (("globex", queued), ("acme", running), ("acme", ended), ("acme", "?")):
        assert store.call(CancelQueued(tenant=tenant, job_id=job_id, now_ms=9)) is None
    assert [row.job_id for row in store.read.queued_page()] == [queued]
    assert store.read.running_ids() == (running,)


def test_recovery_ends_running_jobs_alone_and_says_what_it_cannot_know(
    store: Store, jobs: Jobs
) -> None:
    queued, running = jobs.accept(), jobs.running()
    jobs.append(running, "half")
    now = store.clock()
    answers = [
        store.call(RecoverRunning(job_id=job_id, now_ms=now)) for job_id in (queued, running)
    ]
    assert answers[0] is None
    assert answers[1] is not None
    assert answers[1].event.data["reason"] == "server_restarted"
    receipt = receipt_of(store, running)
    row = store.read.get("acme", running)
    assert row is not None
    assert row.started_at_ms is not None
    assert receipt == {
        "version": 1,
        "job_id": running,
        "outcome": "error",
        "exit_code": None,
        "killed_by": "server_restarted",
        "terminal_reason": "server_restarted",
        "created_at_ms": row.created_at_ms,
        "started_at_ms": row.started_at_ms,
        "finished_at_ms": now,
        "duration_ms": now - row.started_at_ms,
        "evidence_complete": False,
        "requested_limits": json.loads(row.spec_json)["limits"],
        "code_sha256": hashlib.sha256(b"print(6*7)").hexdigest(),
        "stdin_sha256": EMPTY,
        "event_chain": check_chain(running, store.read.events_after(running)).receipt_member(),
        "receipt_sha256": answers[1].receipt_sha256,
    }
    assert receipt["event_chain"]["complete"] is True
    assert store.call(RecoverRunning(job_id=running, now_ms=now)) is None
    assert [row.job_id for row in store.read.queued_page()] == [queued]


def recover_all(store: Store) -> int:
    """One pass as a server makes it: a failing row is left, the pass goes on to fail as a whole."""
    recovered, now = 0, store.clock()
    while ids := store.read.running_ids(32):
        for job_id in ids:
            if store.call(RecoverRunning(job_id=job_id, now_ms=now)) is not None:
                recovered += 1
    return recovered


def test_recovery_that_fails_midway_can_be_repeated(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    ids = [jobs.running() for _ in range(256)]
    raw.execute(
        "CREATE TRIGGER sabotage BEFORE UPDATE ON jobs "
        f"WHEN NEW.job_id = '{ids[128]}' BEGIN SELECT RAISE(ABORT, 'sabotage'); END"
    )
    with pytest.raises(RecordRefusedError):
        recover_all(store)
    statuses = [row.status for row in store.read.list_jobs("acme", 256)][::-1]
    assert statuses == ["error"] * 128 + ["running"] * 128
    assert store.read.last_seq(ids[128]) == 2
    raw.execute("DROP TRIGGER sabotage")
    assert recover_all(store) == 128
    assert recover_all(store) == 0


@pytest.mark.parametrize(
    ("spec_json", "members"),
    [
        ('{"legacy_invalid_spec_json":"?"}', set()),
        ("[1]", set()),
        (b"\xff", set()),
        ('{"code":"x","limits":{"mem_mb":-1}}', {"code_sha256", "stdin_sha256"}),
        ('{"code":"x","stdin":3,"limits":{}}', {"code_sha256", "requested_limits"}),
    ],
)
def test_recovery_states_only_what_an_old_spec_still_tells(
    store: Store, jobs: Jobs, raw: apsw.Connection, spec_json: str | bytes, members: set[str]
) -> None:
    job_id = jobs.running()
    raw.execute("DROP TRIGGER jobs_identity")
    raw.execute("PRAGMA ignore_check_constraints = ON")
    raw.execute("UPDATE jobs SET spec_json = CAST(? AS TEXT)", (spec_json,))
    raw.execute("PRAGMA ignore_check_constraints = OFF")
    store.call(RecoverRunning(job_id=job_id, now_ms=store.clock()))
    optional = {"code_sha256", "stdin_sha256", "requested_limits"}
    assert receipt_of(store, job_id).keys() & optional == members


def test_a_queued_cancel_of_an_undecodable_spec_writes_the_core_alone(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    job_id = jobs.accept()
    raw.execute("DROP TRIGGER jobs_identity")
    raw.execute("""UPDATE jobs SET spec_json = '{"legacy_invalid_spec_json":"?"}'""")
    store.call(CancelQueued(tenant="acme", job_id=job_id, now_ms=store.clock()))
    assert sorted(receipt_of(store, job_id)) == [
        *("created_at_ms", "duration_ms", "event_chain", "exit_code", "finished_at_ms", "job_id"),
        *("outcome", "receipt_sha256", "started_at_ms", "version"),
    ]


def test_a_receipt_counts_legacy_events_and_does_not_call_them_complete(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    job_id = jobs.accept()
    raw.execute("DROP TRIGGER events_no_update")
    raw.execute("UPDATE events SET hash_version = 0, prev_hash = '', event_hash = ''")
    jobs.start(job_id)
    jobs.finalise(job_id)
    events = store.read.events_after(job_id)
    assert events[1].prev_hash == ""
    chain = check_chain(job_id, events)
    assert chain.valid
    assert receipt_of(store, job_id)["event_chain"] == chain.receipt_member()
    assert (chain.events, chain.verified_events, chain.legacy_events) == (3, 2, 1)
    assert chain.complete is False


class Outcome:
    def __init__(self) -> None:
        self.seen: list[Participation] = []

    def apply(self, db: apsw.Connection, context: Participation) -> None:
        assert db.in_transaction
        self.seen.append(context)


class Refusal:
    def apply(self, db: apsw.Connection, context: Participation) -> None:
        raise RuntimeError("no")


def test_participants_of_every_ending_see_the_receipt_that_is_stored(
    store: Store, jobs: Jobs
) -> None:
    ended, queued, lost = jobs.running(), jobs.accept(), jobs.running()
    outcome = Outcome()
    with_guest = [outcome]
    jobs.finalise(ended, participants=with_guest)
    store.call(CancelQueued(tenant="acme", job_id=queued, now_ms=1, participants=with_guest))
    store.call(RecoverRunning(job_id=lost, now_ms=1, participants=with_guest))
    assert [context.job_id for context in outcome.seen] == [ended, queued, lost]
    for context in outcome.seen:
        row = store.read.get("acme", context.job_id)
        assert row is not None
        assert (row.status, row.receipt_json) == (context.status, context.receipt_json)
        assert context.receipt_sha256 == receipt_of(store, context.job_id)["receipt_sha256"]


def test_a_participant_that_fails_leaves_the_job_running(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    with pytest.raises(RuntimeError, match="no"):
        jobs.finalise(job_id, participants=[Refusal()])
    assert store.read.running_ids() == (job_id,)
    assert store.read.last_seq(job_id) == 2
    assert store.read.outbox(job_id) is None
    assert jobs.finalise(job_id) is not None


@pytest.mark.parametrize("name", [1, None, "\ud800", True])
def test_a_receipt_member_without_a_json_name_is_refused_before_anything_is_written(
    store: Store, jobs: Jobs, name: Any
) -> None:
    job_id = jobs.running()
    with pytest.raises(CanonicalError):
        jobs.finalise(job_id, receipt={name: 1})
    assert store.read.running_ids() == (job_id,)


@pytest.mark.parametrize("opening", [b"[", b'{"limits":', b'{"files":[{"path":'])
def test_a_stored_spec_too_deep_to_read_is_one_that_does_not_decode(opening: bytes) -> None:
    spec = opening * 20_000
    assert queued_cancel(spec) == {}
    assert restart(spec) == {
        "killed_by": "server_restarted",
        "terminal_reason": "server_restarted",
        "evidence_complete": False,
    }
