import threading
import time

import apsw
import pytest

from rookhold_store import (
    RecordRefusedError,
    StorageFullError,
    StorageUnavailableError,
    Store,
    StoreClosedError,
)
from rookhold_store.testing import Jobs


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
