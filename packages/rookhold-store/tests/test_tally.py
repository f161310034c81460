"""How many jobs there are in each status is known without counting, and is what counting finds."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from rookhold_store import (
    InvalidOperationError,
    StorageUnavailableError,
    Store,
    StoreError,
    Sweep,
    tally,
)
from rookhold_store.operations import CancelQueued, Participation
from rookhold_store.testing import Jobs, TickingClock, anything_binds

CLOCK = TickingClock()
SECONDS = 60


class Refuses:
    """A participant that rolls its operation back, alone."""

    def apply(self, db: apsw.Connection, context: Participation) -> None:
        raise ValueError


def open_store(path: Path) -> Store:
    return Store.open(path, binding=anything_binds, clock=CLOCK, tallied=True)


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with open_store(path) as opened:
        yield opened


def listed(store: Store, tenant: str) -> dict[str, int]:
    """Count what the tenant sees."""
    return dict(Counter(row.status.value for row in store.read.list_jobs(tenant, 500)))


def check(store: Store, *tenants: str) -> None:
    for tenant in tenants:
        assert store.job_counts(tenant, wait_seconds=SECONDS) == listed(store, tenant)


def some_life(store: Store, chance: random.Random) -> None:
    jobs, tenant = Jobs(store), chance.choice("abc")
    if chance.random() < 0.3:
        refused = store.submit(jobs.acceptance(tenant=tenant, participants=[Refuses()]))
        assert isinstance(refused.exception(SECONDS), ValueError)
    job_id = jobs.accept(tenant=tenant)
    match chance.randrange(4):
        case 0:
            return
        case 1:
            store.call(CancelQueued(tenant=tenant, job_id=job_id, now_ms=CLOCK()))
            return
    jobs.start(job_id)
    if chance.random() < 0.7:
        jobs.append(job_id, *["x" * 10_000] * chance.randrange(40))
        jobs.finalise(job_id)


def test_it_is_what_the_tenant_sees_after_whatever_happened(store: Store) -> None:
    chance = random.Random(11)
    check(store, "a", "b", "c", "nobody")
    for _ in range(4):
        for _ in range(12):
            some_life(store, chance)
        check(store, "a", "b", "c")
    assert store.job_counts("a")
    store.close()
    with open_store(store.path) as again:
        check(again, "a", "b", "c")
        while again.call(Sweep(now_ms=CLOCK() + 1, age_ms=0, max_jobs=1)).more_remaining:
            check(again, "a", "b", "c")
        check(again, "a", "b", "c")
        assert set(again.job_counts("a") or {}) <= {"queued", "running"}


def test_a_job_whose_removal_has_begun_is_not_counted(store: Store, path: Path) -> None:
    jobs = Jobs(store)
    job_id = jobs.running()
    for _ in range(3):
        jobs.append(job_id, *["x" * 12_000] * 100)
    jobs.finalise(job_id)
    swept = store.call(Sweep(now_ms=CLOCK() + 1, age_ms=0))
    assert swept.hidden == (job_id,)
    assert swept.jobs_deleted == 0
    assert store.job_counts("acme", wait_seconds=SECONDS) == {}
    store.close()
    with open_store(path) as again:  # counted anew, in the middle of the removal
        assert again.job_counts("acme", wait_seconds=SECONDS) == {}
        while again.call(Sweep(now_ms=CLOCK() + 1, age_ms=0)).more_remaining:
            assert again.job_counts("acme") == {}
        assert again.job_counts("acme") == {}


def test_operations_that_roll_back_alone_or_together_change_nothing(store: Store) -> None:
    jobs = Jobs(store)
    jobs.accept()
    good, bad = jobs.acceptance(), jobs.acceptance(participants=[Refuses()])
    futures = [store.submit(op) for op in (bad, good, bad)]
    assert [future.exception(SECONDS) is None for future in futures] == [False, True, False]
    check(store, "acme")
    answers = iter([True])
    store._writer._db.set_commit_hook(lambda: next(answers, False))
    assert isinstance(store.submit(jobs.acceptance()).exception(SECONDS), StoreError)
    check(store, "acme")
    jobs.accept()
    assert store.job_counts("acme") == {"queued": 3}


def test_what_changes_while_the_old_jobs_are_counted_counts_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = Jobs(store)
    old = [jobs.accept() for _ in range(20)]
    store.close()
    may_count, look = threading.Event(), tally.JobTally._look

    def later(self: tally.JobTally) -> list[tuple[str, str, int]]:
        assert may_count.wait(SECONDS)
        return look(self)

    monkeypatch.setattr(tally.JobTally, "_look", later)
    with open_store(store.path) as again:
        jobs = Jobs(again)
        for job_id in old[:5]:
            jobs.start(job_id)
        jobs.finalise(old[0])
        new = jobs.accept()
        jobs.start(new)
        assert again.job_counts("acme") is None
        may_count.set()
        expected = {"queued": 15, "running": 5, "succeeded": 1}
        assert again.job_counts("acme", wait_seconds=SECONDS) == expected == listed(again, "acme")


def test_asking_reads_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    Jobs(store).accept()
    assert store.job_counts("acme", wait_seconds=SECONDS) == {"queued": 1}

    def fail(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(type(store.read), "_lend", fail)
    assert store.job_counts("acme") == {"queued": 1}


def test_a_count_that_fails_says_so_and_holds_nobody_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: tally.JobTally) -> list[tuple[str, str, int]]:
        raise apsw.IOError

    monkeypatch.setattr(tally.JobTally, "_look", fail)
    with open_store(path) as store:
        with pytest.raises(StorageUnavailableError):
            store.job_counts("acme", wait_seconds=SECONDS)
        Jobs(store).accept()


def test_a_store_that_closes_while_counting_leaves_no_log_behind(path: Path) -> None:
    with Store.open(path, binding=anything_binds, clock=CLOCK) as store:
        Jobs(store).accept()
    for _ in range(3):
        open_store(path).close()
        assert sorted(file.name for file in path.parent.iterdir()) == [path.name]


def test_a_store_that_is_not_tallied_says_so(path: Path) -> None:
    with Store.open(path, clock=CLOCK) as store, pytest.raises(InvalidOperationError):
        store.job_counts("acme")
