"""The sum that is kept beside the ledger is the ledger's own, after whatever happened to it."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from rookhold_store import (
    FailAttestation,
    StorageFullError,
    StorageLimits,
    Store,
    StoreError,
    Sweep,
    WaiveAttestation,
    reservations,
)
from rookhold_store.operations import Participation
from rookhold_store.testing import Jobs, TickingClock, anything_binds

LIMITS = StorageLimits(global_bytes=1 << 60, tenant_bytes=1 << 60, free_reserve_bytes=1)
CLOCK = TickingClock()
WHOLE = "SELECT coalesce(sum(reserved_bytes), 0) FROM job_storage_usage"


class Answers:
    """Ask statements of the writer's own connection."""

    size = 0

    def __init__(self, *statements: str) -> None:
        self.statements = statements

    def run(self, db: apsw.Connection) -> list[object]:
        return [db.execute(statement).get for statement in self.statements]


class Refuses:
    """A participant that rolls its operation back, alone."""

    def apply(self, db: apsw.Connection, context: Participation) -> None:
        raise ValueError


def open_store(path: Path) -> Store:
    return Store.open(path, binding=anything_binds, clock=CLOCK, limits=LIMITS)


def sums(store: Store) -> tuple[int, int, int]:
    recounted, whole = store._writer.submit(Answers(reservations.RECOUNT, WHOLE)).result(30)
    assert store._quota._reservations is not None
    return store._quota._reservations.outstanding, recounted, whole


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(path) as opened:
        yield opened


def some_life(store: Store, chance: random.Random) -> None:
    jobs = Jobs(store)
    if chance.random() < 0.3:
        refused = store.submit(jobs.acceptance(participants=[Refuses()]))
        assert isinstance(refused.exception(30), ValueError)
    job_id = jobs.accept(tenant=chance.choice("abc"))
    if chance.random() < 0.3:
        return
    jobs.start(job_id)
    jobs.append(job_id, "x" * chance.choice((1, 1000, 100_000)))
    if chance.random() < 0.3:
        return
    jobs.finalise(job_id)
    match chance.randrange(4):
        case 0:
            store.call(jobs.attestation(job_id))
        case 1:
            store.call(FailAttestation(job_id=job_id, code="no", now_ms=1, profile="1"))
        case 2:
            store.call(WaiveAttestation(job_id=job_id))


def test_the_sum_follows_every_life_rollback_and_removal_and_is_found_again_at_an_open(
    store: Store,
) -> None:
    assert sums(store) == (0, 0, 0)
    chance = random.Random(5)
    for _ in range(3):
        for _ in range(10):
            some_life(store, chance)
        kept, recounted, whole = sums(store)
        assert kept == recounted == whole > 0
    before = sums(store)[0]
    swept = store.call(Sweep(now_ms=CLOCK() + 1, age_ms=0))
    assert swept.jobs_deleted > 0
    assert sums(store)[0] < before, "some of them waited for a signature"
    kept, recounted, whole = sums(store)
    assert kept == recounted == whole > 0
    store.close()
    with open_store(store.path) as again:
        kept, recounted, whole_after = sums(again)
    assert kept == recounted == whole_after
    assert whole_after >= whole  # what was waived without a code is pending again


def test_the_sum_survives_a_commit_that_failed(store: Store) -> None:
    jobs = Jobs(store)
    jobs.accept()
    before = sums(store)
    answers = iter([True])
    store._writer._db.set_commit_hook(lambda: next(answers, False))
    assert isinstance(store.submit(jobs.acceptance()).exception(30), StoreError)
    assert sums(store) == before
    jobs.accept()
    kept, recounted, whole = sums(store)
    assert kept == recounted == whole == 2 * before[0]


class Gate:
    """Holds the writer, so that what is submitted meanwhile shares a commit."""

    size = 0

    def __init__(self) -> None:
        self.open = threading.Event()

    def run(self, db: apsw.Connection) -> None:
        assert self.open.wait(30)


def test_the_sum_survives_operations_of_a_shared_commit_that_fail_alone(store: Store) -> None:
    jobs = Jobs(store)
    jobs.accept()
    one = sums(store)[0]
    gate = Gate()
    store._writer.submit(gate)
    futures = [
        store.submit(jobs.acceptance(participants=[Refuses()] if place in (0, 2, 3) else []))
        for place in range(5)
    ]
    gate.open.set()
    assert [type(future.exception(30)) for future in futures].count(ValueError) == 3
    assert sums(store) == (3 * one, 3 * one, 3 * one)


class LosesAll:
    """A participant after whose rows the whole transaction is gone, as where the disk is full."""

    def apply(self, db: apsw.Connection, context: Participation) -> None:
        db.execute("ROLLBACK")
        raise ValueError


def test_the_sum_survives_a_transaction_that_was_lost_in_the_middle(store: Store) -> None:
    jobs = Jobs(store)
    jobs.accept()
    one = sums(store)[0]
    gate = Gate()
    store._writer.submit(gate)
    futures = [
        store.submit(jobs.acceptance(participants=[LosesAll()] if place == 1 else []))
        for place in range(3)
    ]
    gate.open.set()
    assert all(isinstance(future.exception(30), StoreError) for future in futures)
    assert sums(store) == (one, one, one)
    assert isinstance(
        store.submit(jobs.acceptance(participants=[LosesAll()])).exception(30), StoreError
    )
    assert sums(store) == (one, one, one)


def test_the_sum_survives_a_full_disk(store: Store) -> None:
    jobs = Jobs(store)
    jobs.accept()
    db = store._writer._db
    db.pragma("max_page_count", db.pragma("page_count"))
    futures = [store.submit(jobs.acceptance()) for _ in range(100)]
    assert any(isinstance(future.exception(30), StorageFullError) for future in futures)
    kept, recounted, whole = sums(store)
    assert kept == recounted == whole


def test_the_sum_is_right_under_many_writers(store: Store) -> None:
    def client(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(3):
            some_life(store, chance)

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    kept, recounted, whole = sums(store)
    assert kept == recounted == whole > 0


def test_counting_again_visits_unfinished_and_unsigned_jobs_only(store: Store) -> None:
    plan = store._writer.submit(Plan()).result(30)
    assert any("jobs_unfinished" in step for step in plan)
    assert any("attestation_outbox_due" in step for step in plan)
    scans = [step for step in plan if step.startswith("SCAN")]
    assert scans == [
        "SCAN attestation_outbox USING INDEX attestation_outbox_due",
        "SCAN held",
    ]


class Plan:
    size = 0

    def run(self, db: apsw.Connection) -> list[str]:
        return [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {reservations.RECOUNT}")]


def test_the_file_learns_nothing_of_the_sum(store: Store) -> None:
    Jobs(store).accept()
    raw = apsw.Connection(str(store.path))
    names = [name for (name,) in raw.execute("SELECT name FROM sqlite_schema")]
    raw.close()
    assert not [name for name in names if "reservation" in name]
