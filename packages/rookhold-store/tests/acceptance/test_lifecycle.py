"""S1 to S11: what becomes of a job, and of its events."""

import hashlib
import json
import threading
from typing import Any

import apsw
import msgspec
import pytest

from rookhold_store import (
    Accepted,
    Append,
    CancelQueued,
    Finalised,
    InvalidOperationError,
    JobEndedError,
    JobNotFoundError,
    Participation,
    RecordRefusedError,
    RecoverRunning,
    StorageUnavailableError,
    Store,
)
from rookhold_store.testing import Jobs
from rookhold_types.canonical import canonical
from rookhold_types.errors import CanonicalError
from rookhold_types.events import check_chain
from rookhold_types.ids import new_job_id
from rookhold_types.jobs import Requirements
from rookhold_types.receipts import placeholder_spec, receipt_digest
from rookhold_types.states import JobStatus


def digest(value: object) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


def receipt(store: Store, job_id: str) -> dict[str, Any]:
    row = store.read.get(None, job_id)
    assert row is not None
    decoded: dict[str, Any] = json.loads(row.receipt_json or "")
    return decoded


def linked(store: Store, job_id: str) -> list[str]:
    """Return the kinds of a job's events after checking number, hash and link of each."""
    events = store.read.events_after(job_id, 0, 5000)
    assert check_chain(job_id, events).complete
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return [event.kind for event in events]


class Refusing:
    """A participant that refuses to share an operation's transaction."""

    def apply(self, db: apsw.Connection, context: Participation) -> None:
        db.execute("UPDATE store_meta SET accounting_revision = 2")
        raise PermissionError(context.job_id)


def test_s1_a_receipt_that_lies_is_overruled_and_an_ending_is_final(
    store: Store, jobs: Jobs
) -> None:
    job_id = jobs.running()
    lie = {
        "version": 9,
        "job_id": "another",
        "outcome": "failed",
        "exit_code": 7,
        "created_at_ms": 1,
        "started_at_ms": 2,
        "finished_at_ms": 3,
        "duration_ms": 4,
        "event_chain": {"head": "0" * 64},
        "receipt_sha256": "0" * 64,
        "killed_by": None,
    }
    ended = jobs.finalise(job_id, receipt=lie)
    assert isinstance(ended, Finalised)

    stored, row = receipt(store, job_id), store.read.get("acme", job_id)
    assert row is not None
    assert (stored["version"], stored["job_id"], stored["outcome"]) == (1, job_id, "succeeded")
    assert (stored["exit_code"], stored["duration_ms"]) == (0, 7)
    times = ("created_at_ms", "started_at_ms", "finished_at_ms")
    assert [stored[name] for name in times] == [getattr(row, name) for name in times]
    assert stored["killed_by"] is None

    assert linked(store, job_id) == ["accepted", "started", "finished"]
    chain = check_chain(job_id, store.read.events_after(job_id))
    assert stored["event_chain"] == chain.receipt_member()
    assert stored["event_chain"]["head"] == ended.event.event_hash
    assert stored["receipt_sha256"] == ended.receipt_sha256 == receipt_digest(stored)

    assert jobs.finalise(job_id, status=JobStatus.FAILED) is None
    with pytest.raises(JobEndedError) as late:
        jobs.append(job_id, "late")
    assert late.value.code == "job_ended"
    assert receipt(store, job_id) == stored


def test_s2_the_observed_spec_takes_the_place_of_the_placeholder(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    initial = placeholder_spec(Requirements())
    running = store.read.get("acme", job_id)
    assert running is not None
    assert json.loads(running.effective_spec_json or "") == msgspec.to_builtins(initial)
    observed = {"storage_version": 2, "isolation_class": "linux-shared-kernel", "outputs": []}
    jobs.finalise(job_id, effective_spec=observed)

    ended = store.read.get("acme", job_id)
    assert ended is not None
    assert ended.effective_spec_json == canonical(observed).decode()
    _, started, finished = store.read.events_after(job_id)
    assert started.data["initial_effective_spec_sha256"] == digest(initial)
    assert "effective_spec_sha256" not in started.data
    assert finished.data["effective_spec_sha256"] == digest(observed)
    assert "initial_effective_spec_sha256" not in finished.data


def test_s3_a_batch_is_stored_whole_and_in_order_or_not_at_all(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    batch = jobs.append(job_id, "one", "two", "three")
    assert [(event.seq, event.data["line"]) for event in batch] == [
        *((3, "one"), (4, "two"), (5, "three"))
    ]
    assert batch == store.read.events_after(job_id, 2)
    assert linked(store, job_id)[2:] == ["stdout"] * 3

    assert jobs.append("nobody") == ()
    with pytest.raises(JobNotFoundError):
        jobs.append("nobody", "a line")
    assert len(jobs.append(job_id, *["x"] * 256)) == 256
    with pytest.raises(InvalidOperationError) as caught:
        jobs.append(job_id, *["x"] * 257)
    assert caught.value.code == "invalid_operation"

    before = store.read.events_after(job_id, 0, 5000)
    good = ("stdout", {"line": "x", "eol": True})
    for bad in (("  ", {"line": "a blank kind"}), ("stdout", {"line": 1.5})):
        with pytest.raises((RecordRefusedError, InvalidOperationError, CanonicalError)):
            store.call(Append(job_id=job_id, events=[good, bad, good], now_ms=store.clock()))
    assert store.read.events_after(job_id, 0, 5000) == before


def test_s4_each_of_two_jobs_is_numbered_by_itself(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    one, two = jobs.running(), jobs.running(tenant="globex")
    for turn in range(5):
        jobs.append(one, f"{turn}")
        jobs.append(two, f"{turn}", "and again")
    assert linked(store, one) == ["accepted", "started", *["stdout"] * 5]
    assert linked(store, two) == ["accepted", "started", *["stdout"] * 10]
    for seq in (0, 1, 7, 9):
        with pytest.raises(apsw.ConstraintError):
            raw.execute(
                "INSERT INTO events SELECT job_id, ?, ts_ms, kind, data_json, event_hash, "
                "event_hash, 1 FROM events WHERE job_id = ? AND seq = 7",
                (seq, one),
            )
    assert len(jobs.append(one, "the next")) == 1
    linked(store, one)


def recovered(store: Store, *, refusing: str | None = None) -> int:
    """Close what is running as a start does, oldest first; the first that fails ends the pass."""
    done = 0
    for job_id in store.read.running_ids(100_000):
        participants = [Refusing()] if job_id == refusing else []
        now_ms = store.clock()
        try:
            store.call(RecoverRunning(job_id=job_id, now_ms=now_ms, participants=participants))
        except PermissionError:
            break
        done += 1
    return done


def test_s6_recovery_ends_the_running_job_alone_and_claims_nothing_unseen(
    store: Store, jobs: Jobs
) -> None:
    queued, running = jobs.accept(), jobs.running()
    jobs.append(running, "before the crash")
    assert recovered(store) == 1
    waiting, ended = store.read.summary("acme", queued), store.read.summary("acme", running)
    assert waiting is not None
    assert ended is not None
    assert (waiting.status, ended.status) == (JobStatus.QUEUED, JobStatus.ERROR)
    assert linked(store, queued) == ["accepted"]
    assert linked(store, running) == ["accepted", "started", "stdout", "finished"]
    assert store.read.events_after(running, 3)[0].data["reason"] == "server_restarted"

    said = receipt(store, running)
    assert (said["outcome"], said["killed_by"]) == ("error", "server_restarted")
    assert (said["terminal_reason"], said["evidence_complete"]) == ("server_restarted", False)
    assert (said["exit_code"], said["duration_ms"]) == (
        None,
        said["finished_at_ms"] - said["started_at_ms"],
    )
    unseen = {
        *("requirements", "resource_usage", "executor_output", "output", "input_files"),
        *("artifacts", "backend", "isolation_class", "bootstrap_ready", "seccomp", "controls"),
        *("network_allowed", "effective_limits", "limit_enforcement", "policy_sha256"),
    }
    assert unseen & said.keys() == set()


def test_s7_a_row_that_cannot_be_recovered_stays_as_it_was_and_the_pass_can_be_repeated(
    store: Store, jobs: Jobs
) -> None:
    accepted = [store.submit(jobs.acceptance(job_id=f"job-{n:03}")) for n in range(256)]
    for future in accepted:
        future.result(timeout=60)
    for number in range(256):
        jobs.start(f"job-{number:03}")
    before = store.read.get("acme", "job-128"), store.read.events_after("job-128")
    assert recovered(store, refusing="job-128") == 128
    assert (store.read.get("acme", "job-128"), store.read.events_after("job-128")) == before
    assert store.read.counts("acme").running == 128
    assert recovered(store) == 128
    assert store.read.running_ids(100_000) == ()
    assert recovered(store) == 0
    assert linked(store, "job-128") == ["accepted", "started", "finished"]


def test_s8_a_page_of_the_queue_begins_where_the_last_ended_whatever_went_meanwhile(
    store: Store, jobs: Jobs
) -> None:
    order = [jobs.accept(tenant=tenant) for tenant in ("acme", "globex") * 3]
    page = store.read.queued_page(limit=3)
    assert [row.job_id for row in page] == order[:3]
    store.call(CancelQueued(tenant="acme", job_id=order[0], now_ms=store.clock()))
    rest = store.read.queued_page(page[-1].cursor, limit=1024)
    assert [row.job_id for row in rest] == order[3:]


def test_s9_a_list_shows_one_row_beyond_its_page_and_needs_no_spec(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    for future in [store.submit(jobs.acceptance()) for _ in range(501)]:
        future.result(timeout=60)
    ahead = store.read.list_jobs("acme", 501)
    assert len(ahead) == 501
    assert store.read.list_jobs("acme", 500) == ahead[:500]

    raw.execute("DROP TRIGGER jobs_identity")
    raw.execute("PRAGMA ignore_check_constraints = ON")
    raw.execute("UPDATE jobs SET spec_json = CAST(x'ff' AS TEXT)")
    assert store.read.list_jobs("acme", 501) == ahead
    assert store.read.summary("acme", ahead[0].job_id) == ahead[0]
    with pytest.raises(StorageUnavailableError):
        store.read.get("acme", ahead[0].job_id)


@pytest.mark.parametrize("tenant", ["", " ", "\t\n"])
def test_s10_a_blank_tenant_or_a_spec_that_is_no_json_is_refused(
    store: Store, jobs: Jobs, tenant: str
) -> None:
    with pytest.raises(InvalidOperationError):
        jobs.accept(tenant=tenant)
    good = jobs.acceptance(key="k")
    for spec in ({"language": 0.5}, {"text": "\ud800"}, ["not an object"]):
        with pytest.raises((InvalidOperationError, CanonicalError)):
            store.call(msgspec.structs.replace(good, spec=spec))
    assert store.read.list_jobs(None) == ()
    assert store.read.list_jobs(tenant) == ()
    assert store.read.last_seq(good.job_id) == 0
    assert store.read.charged_bytes() == 0
    assert store.read.find_key("acme", "k") is None


class Gate:
    """Work that holds the writer until all that shall come together has come."""

    size = 0

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def run(self, db: apsw.Connection) -> None:
        self.entered.set()
        assert self.open.wait(60)


def together(store: Store, operations: list[Any], *, commit: bool = True) -> list[Any]:
    """Return the answer or the error of each of several operations that share a commit."""
    gate = Gate()
    store._writer.submit(gate)
    assert gate.entered.wait(60)
    futures = [store.submit(operation) for operation in operations]
    if not commit:
        answers = iter([False, True])  # of the gate's own transaction, and of the shared one
        store._writer._db.set_commit_hook(lambda: next(answers, False))
    gate.open.set()
    return [future.exception(timeout=60) or future.result() for future in futures]


def test_s11_operations_that_arrive_together_share_a_commit_and_its_fate(
    store: Store, jobs: Jobs
) -> None:
    commits: list[int] = []
    store.on_commit(commits.append)
    good = [jobs.acceptance(job_id=new_job_id()) for _ in range(40)]
    answers = together(store, [*good[:20], jobs.acceptance(job_id=good[0].job_id), *good[20:]])
    assert isinstance(answers.pop(20), RecordRefusedError)
    assert all(isinstance(answer, Accepted) for answer in answers)
    jobs.accept()  # so that the writer has told of the commit before it
    assert 40 in commits

    lost = together(store, [jobs.acceptance(tenant="globex") for _ in range(5)], commit=False)
    assert {getattr(error, "code", None) for error in lost} == {"storage_unavailable"}
    assert store.read.list_jobs("globex") == ()
    assert isinstance(jobs.submit(jobs.acceptance(tenant="globex")), Accepted)
    assert len(store.read.list_jobs("acme", 500)) == 41
