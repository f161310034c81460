import threading
import time
from typing import Any

import apsw
import pytest

from rookhold_store import (
    Accept,
    Append,
    CancelQueued,
    DeferAttestation,
    FailAttestation,
    InvalidOperationError,
    ProveWritable,
    RecordRefusedError,
    RecoverRunning,
    RetryAttestations,
    Start,
    StorageFullError,
    StorageUnavailableError,
    Store,
    StoreClosedError,
    WaiveAttestation,
)
from rookhold_store.operations import Operation, Participation
from rookhold_store.schema import expected_objects
from rookhold_store.testing import Jobs
from rookhold_types.errors import CanonicalError
from rookhold_types.jobs import JobSpec, fingerprint


class Gate:
    """Work that holds the writer until the test lets it go on."""

    size = 0

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def run(self, db: apsw.Connection) -> None:
        self.entered.set()
        assert self.open.wait(30)


class Step:
    """Work that runs one statement."""

    size = 0

    def __init__(self, sql: str) -> None:
        self.sql = sql

    def run(self, db: apsw.Connection) -> str:
        db.execute(self.sql)
        return self.sql


@pytest.fixture
def gate(store: Store) -> Gate:
    gate = Gate()
    store._writer.submit(gate)
    assert gate.entered.wait(30)
    return gate


def test_operations_that_arrive_together_share_a_commit(
    store: Store, jobs: Jobs, gate: Gate
) -> None:
    commits: list[int] = []
    store.on_commit(commits.append)
    futures = [store.submit(jobs.acceptance()) for _ in range(50)]
    assert not any(future.done() for future in futures)
    gate.open.set()
    for future in futures:
        future.result(timeout=30)
    jobs.accept()
    assert commits[:2] == [1, 50]


def test_a_listener_that_fails_does_not_stop_the_writer(store: Store, jobs: Jobs) -> None:
    store.on_commit(lambda operations: 1 // 0)
    jobs.accept()
    jobs.accept()
    assert len(store.read.list_jobs("acme")) == 2


def test_one_that_fails_rolls_back_alone(store: Store, jobs: Jobs, gate: Gate) -> None:
    good = [jobs.acceptance() for _ in range(4)]
    bad = jobs.acceptance(job_id=good[0].job_id, tenant="globex")
    futures = [store.submit(op) for op in (*good[:2], bad, *good[2:])]
    gate.open.set()
    with pytest.raises(RecordRefusedError):
        futures[2].result(timeout=30)
    for future in (*futures[:2], *futures[3:]):
        future.result(timeout=30)
    assert len(store.read.list_jobs("acme")) == 4
    assert store.read.list_jobs("globex") == ()


def test_a_failed_shared_commit_fails_all_of_it(store: Store, jobs: Jobs, gate: Gate) -> None:
    futures = [store.submit(jobs.acceptance()) for _ in range(5)]
    alone = store._writer.submit(Step("INSERT INTO store_meta VALUES (1, 2)"))
    answers = iter([False, True])  # the commit of the gate itself passes
    store._writer._db.set_commit_hook(lambda: next(answers, False))
    gate.open.set()
    for future in futures:
        with pytest.raises(StorageUnavailableError) as caught:
            future.result(timeout=30)
        assert (caught.value.code, caught.value.retryable) == ("storage_unavailable", True)
    with pytest.raises(RecordRefusedError):
        alone.result(timeout=30)
    assert store.read.list_jobs("acme") == ()
    jobs.accept()
    assert len(store.read.list_jobs("acme")) == 1


def test_nothing_is_answered_before_its_commit(store: Store, jobs: Jobs, gate: Gate) -> None:
    first = store.submit(jobs.acceptance())
    second = Gate()
    store._writer.submit(second)
    gate.open.set()
    assert second.entered.wait(30)
    assert not first.done()
    assert store.read.list_jobs("acme") == ()
    second.open.set()
    first.result(timeout=30)
    assert len(store.read.list_jobs("acme")) == 1


def test_a_lost_transaction_fails_everybody_in_it(store: Store, jobs: Jobs, gate: Gate) -> None:
    before = store.submit(jobs.acceptance())
    lost = store._writer.submit(Step("ROLLBACK"))
    after = store.submit(jobs.acceptance())
    gate.open.set()
    for future in (before, lost, after):
        with pytest.raises(StorageUnavailableError):
            future.result(timeout=30)
    assert store.read.list_jobs("acme") == ()
    jobs.accept()


def test_a_full_disk_is_told_apart_and_leaves_nothing(store: Store, jobs: Jobs) -> None:
    pages = store._writer._db.pragma("page_count")
    store._writer._db.pragma("max_page_count", pages)
    futures = [store.submit(jobs.acceptance()) for _ in range(200)]
    refusals = [error for future in futures if (error := future.exception(timeout=30))]
    assert {type(error) for error in refusals} == {StorageFullError}
    assert StorageFullError.code == "storage_reserve"
    kept = len(store.read.list_jobs("acme", 500))
    store._writer._db.pragma("max_page_count", 1_000_000)
    jobs.accept()
    assert len(store.read.list_jobs("acme", 500)) == kept + 1


def test_a_proof_commits_and_changes_nothing(store: Store, jobs: Jobs) -> None:
    jobs.accept()
    log = store.path.with_name(store.path.name + "-wal")
    before = (log.stat().st_size, store.read.list_jobs("acme"))
    assert store.call(ProveWritable()) is None
    assert log.stat().st_size > before[0], "it is a commit like any other"
    assert store.read.list_jobs("acme") == before[1]
    assert store.read.probe()


def test_an_operation_that_was_cancelled_in_time_is_not_run(
    store: Store, jobs: Jobs, gate: Gate
) -> None:
    dropped = store.submit(jobs.acceptance())
    kept = store.submit(jobs.acceptance())
    assert dropped.cancel()
    gate.open.set()
    kept.result(timeout=30)
    assert len(store.read.list_jobs("acme")) == 1


def test_closing_finishes_what_was_submitted_and_refuses_the_rest(
    store: Store, jobs: Jobs, gate: Gate
) -> None:
    submitted = store.submit(jobs.acceptance())
    closer = threading.Thread(target=store.close)
    closer.start()
    deadline = time.monotonic() + 30
    while not store._writer._closed and time.monotonic() < deadline:
        time.sleep(0.001)
    late = store.submit(jobs.acceptance())
    gate.open.set()
    closer.join(30)
    submitted.result(timeout=30)
    with pytest.raises(StoreClosedError):
        late.result(timeout=30)
    with pytest.raises(StoreClosedError):
        store.read.list_jobs("acme")
    store.close()
    with Store.open(store.path) as again:
        assert len(again.read.list_jobs("acme")) == 1


def test_many_threads_each_see_their_own_writes(store: Store, jobs: Jobs) -> None:
    failures: list[str] = []

    def client(tenant: str) -> None:
        for _ in range(10):
            job_id = jobs.finished(tenant=tenant)
            row = store.read.summary(tenant, job_id)
            if row is None or row.status != "succeeded" or store.read.last_seq(job_id) != 4:
                failures.append(job_id)

    threads = [threading.Thread(target=client, args=(f"t{n}",)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert [len(store.read.list_jobs(f"t{n}")) for n in range(12)] == [10] * 12


class Raises:
    """A participant that fails in some way."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def apply(self, db: apsw.Connection, context: Participation) -> None:
        raise self.error


@pytest.mark.parametrize("error", [ValueError(), StopIteration(), SystemExit(), GeneratorExit()])
def test_whatever_a_participant_raises_is_its_callers_alone(
    store: Store, jobs: Jobs, gate: Gate, error: BaseException
) -> None:
    good = [jobs.acceptance(), jobs.acceptance()]
    bad = jobs.acceptance(participants=[Raises(error)])
    futures = [store.submit(op) for op in (good[0], bad, good[1])]
    gate.open.set()
    assert futures[1].exception(30) is error
    assert [futures[0].exception(30), futures[2].exception(30)] == [None, None]
    assert {row.job_id for row in store.read.list_jobs("acme")} == {op.job_id for op in good}


def test_a_callback_or_listener_that_exits_does_not_stop_the_writer(
    store: Store, jobs: Jobs
) -> None:
    def leave(_: object) -> None:
        raise SystemExit

    store.on_commit(leave)
    for _ in range(2):
        future = store.submit(jobs.acceptance())
        future.add_done_callback(leave)
        future.result(30)
    assert store.submit(jobs.acceptance()).exception(30) is None


NO_TEXT = "\ud800"
NO_NUMBER = 2**63


def operations(jobs: Jobs) -> list[Operation[Any]]:
    """Return messages with a text or a number that no database row can hold."""
    done, running = jobs.finished(), jobs.running()
    spec = JobSpec(language="python", code="1")
    accept: dict[str, Any] = {
        "job_id": "j",
        "tenant": "t",
        "language": "python",
        "spec": spec.stored(),
        "admitted_mem_mb": 256,
        "now_ms": 1,
        "fingerprint": fingerprint(spec),
    }
    return [
        *(Accept(**{**accept, name: NO_TEXT}) for name in ("job_id", "tenant", "language")),
        Accept(**{**accept, "now_ms": NO_NUMBER}),
        Start(job_id=NO_TEXT, now_ms=1),
        Start(job_id=jobs.accept(), now_ms=NO_NUMBER),
        Append(job_id=NO_TEXT, events=[("k", {})], now_ms=1),
        Append(job_id=running, events=[(NO_TEXT, {})], now_ms=1),
        Append(job_id=running, events=[("k", {})], now_ms=NO_NUMBER),
        CancelQueued(tenant=NO_TEXT, job_id=NO_TEXT, now_ms=1),
        RecoverRunning(job_id=NO_TEXT, now_ms=1),
        DeferAttestation(job_id=NO_TEXT, now_ms=1, delay_ms=100),
        DeferAttestation(job_id=done, now_ms=NO_NUMBER, delay_ms=100),
        FailAttestation(job_id=done, code=NO_TEXT, now_ms=1, profile="1"),
        WaiveAttestation(job_id=NO_TEXT),
        RetryAttestations(job_ids=[NO_TEXT], now_ms=1),
        jobs.attestation(done, key_id=NO_TEXT),
        jobs.attestation(done, now_ms=NO_NUMBER),
    ]


def test_a_text_or_number_that_no_row_can_hold_is_an_invalid_operation_and_leaves_nothing(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    messages = operations(jobs)
    tables = [name for name in expected_objects() if expected_objects()[name].kind == "table"]

    def everything() -> list[list[Any]]:
        return [raw.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall() for table in tables]

    before = everything()
    for message in messages:
        failure = store.submit(message).exception(30)
        assert isinstance(failure, InvalidOperationError | CanonicalError), message
    assert everything() == before
