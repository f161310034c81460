"""What a quota and the free reserve refuse, to the byte, and what they never refuse."""

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rookhold_store import (
    Append,
    CancelQueued,
    FailAttestation,
    Finalise,
    GlobalQuotaError,
    InvalidOperationError,
    RecoverRunning,
    Replayed,
    ReserveReachedError,
    RetryAttestations,
    StorageFullError,
    StorageLimits,
    StorageUnavailableError,
    Store,
    Sweep,
    TenantQuotaError,
    quota,
)
from rookhold_store.accounting import RESERVE_ACCEPTED, RESERVE_PENDING, findings
from rookhold_store.testing import Jobs, TickingClock, anything_binds, tampering_connection
from rookhold_types.jobs import JobSpec
from rookhold_types.states import JobStatus

MIB = 1024 * 1024
PLENTY = 1 << 50
CLOCK = TickingClock()
VIOLATION = ("violation", {"rule": "wall_clock_exceeded", "detail": {}})
Reopen = Callable[..., Store]


@pytest.fixture
def reopen(path: Path) -> Iterator[Reopen]:
    """Close the store, if it is open, and open it again with other limits."""
    last: list[Store] = []

    def again(*, tenant: int = PLENTY, overall: int = PLENTY, free: int = 0) -> Store:
        for store in last:
            store.close()
        tenant = min(tenant, overall)
        limits = StorageLimits(global_bytes=overall, tenant_bytes=tenant, free_reserve_bytes=free)
        last[:] = [Store.open(path, binding=anything_binds, clock=CLOCK, limits=limits)]
        return last[0]

    yield again
    for store in last:
        store.close()


@contextmanager
def unchanged(store: Store) -> Iterator[None]:
    """Everything that is stored is afterwards what it was before, and the ledger is exact."""
    tables = ("jobs", "events", "idempotency_keys", "job_storage_usage", "storage_usage_total")
    db = tampering_connection(store.path)

    def everything() -> list[Any]:
        assert findings(db) == []
        return [db.execute(f"SELECT * FROM {table}").fetchall() for table in tables]

    before = everything()
    yield
    assert everything() == before
    db.close()


def append(store: Store, job_id: str, *events: tuple[str, dict[str, Any]]) -> None:
    store.call(Append(job_id=job_id, events=events, now_ms=CLOCK()))


def end(store: Store, job_id: str, *events: tuple[str, dict[str, Any]]) -> Any:
    message = Finalise(
        job_id=job_id,
        status=JobStatus.SUCCEEDED,
        exit_code=0,
        now_ms=CLOCK(),
        duration_ms=1,
        receipt={},
        events=events,
    )
    return store.call(message)


def reserve_eaten(store: Store) -> str:
    """Return a running job whose every further byte goes to the quota, without the 12 MiB."""
    job_id = Jobs(store).running()
    db = tampering_connection(store.path)
    db.execute(
        "UPDATE job_storage_usage SET reserved_bytes = ? WHERE job_id = ?",
        (RESERVE_PENDING, job_id),
    )
    db.close()
    return job_id


@pytest.mark.parametrize(
    ("overall", "tenant", "free"),
    [(0, 0, 0), (-1, -1, 0), (5, 0, 0), (5, -1, 0), (5, 6, 0), (5, 5, -1)],
)
def test_limits_are_positive_and_a_tenants_is_not_above_the_overall_one(
    overall: int, tenant: int, free: int
) -> None:
    with pytest.raises(InvalidOperationError):
        StorageLimits(global_bytes=overall, tenant_bytes=tenant, free_reserve_bytes=free)


def test_without_limits_nothing_is_refused_and_the_disk_is_not_looked_at(
    store: Store, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "free_bytes", lambda directory: 1 // 0)
    assert store.limits is None
    jobs.accept()
    reserve_eaten(store)


LINE = ("stdout", {"line": "y" * 1000, "eol": True})


def test_growth_beyond_the_reserve_is_refused_to_the_byte_and_leaves_nothing(
    reopen: Reopen,
) -> None:
    store = reopen()
    job_id = reserve_eaten(store)
    before = store.read.charged_bytes()
    append(store, job_id, LINE)
    after = store.read.charged_bytes()
    exact = after + (after - before)  # the next line is as long as this one
    store = reopen(tenant=exact - 1)
    with unchanged(store), pytest.raises(TenantQuotaError):
        append(store, job_id, LINE)
    store = reopen(tenant=exact)
    append(store, job_id, LINE)
    assert store.read.charged_bytes() == exact
    with unchanged(store), pytest.raises(TenantQuotaError):
        append(store, job_id, LINE)


def test_growth_that_others_leave_no_room_for_is_refused_as_everybodys(reopen: Reopen) -> None:
    store = reopen()
    job_id = reserve_eaten(store)
    Jobs(store).accept(tenant="other")
    store = reopen(overall=store.read.charged_bytes())
    with unchanged(store), pytest.raises(GlobalQuotaError):
        append(store, job_id, LINE)


def test_growth_within_the_reserve_is_taken_whatever_the_quota(reopen: Reopen) -> None:
    job_id = Jobs(reopen()).running()
    store = reopen(overall=1)
    charged = store.read.charged_bytes()
    room = RESERVE_ACCEPTED - RESERVE_PENDING
    append(store, job_id, ("stdout", {"line": "x" * 11 * MIB, "eol": True}))
    assert store.read.charged_bytes() == charged
    assert store.read.storage_usage("acme").reserved_bytes < RESERVE_ACCEPTED - 11 * MIB
    with unchanged(store), pytest.raises(TenantQuotaError):
        append(store, job_id, ("stdout", {"line": "x" * (room - 11 * MIB), "eol": True}))


def test_what_is_said_about_a_run_is_kept_over_the_quota_but_not_together_with_output(
    reopen: Reopen,
) -> None:
    job_id = reserve_eaten(reopen())
    store = reopen(overall=1)
    with unchanged(store), pytest.raises(TenantQuotaError):
        append(store, job_id, VIOLATION, LINE)
    for kind in ("stderr", "artifact", "of_a_layer_above"):
        with unchanged(store), pytest.raises(TenantQuotaError):
            append(store, job_id, (kind, {}))
    append(store, job_id, VIOLATION, ("truncated", {"stream": "stdout"}))
    kinds = [event.kind for event in store.read.events_after(job_id)]
    assert kinds[-2:] == ["violation", "truncated"]


def test_a_job_starts_though_its_reserve_was_eaten_in_the_queue(reopen: Reopen) -> None:
    store = reopen()
    job_id = Jobs(store).accept()
    Jobs(store).append(job_id, "x" * 13 * MIB)
    store = reopen(overall=1)
    assert Jobs(store).start(job_id) is not None


def test_an_ending_is_taken_whatever_the_quota_but_output_given_with_it_is_not(
    reopen: Reopen,
) -> None:
    store = reopen()
    ids = [reserve_eaten(store) for _ in range(3)]
    store = reopen(overall=1)
    with unchanged(store), pytest.raises(TenantQuotaError):
        end(store, ids[0], VIOLATION, LINE)
    assert end(store, ids[0]) is not None
    assert end(store, ids[1], VIOLATION) is not None
    assert store.call(RecoverRunning(job_id=ids[2], now_ms=CLOCK())) is not None
    assert store.read.storage_usage().reserved_bytes == 3 * RESERVE_PENDING


def test_output_given_with_an_ending_is_taken_to_the_byte(reopen: Reopen) -> None:
    charges = {}
    for line in ("y", "y" * 5 * MIB):
        store = reopen()
        job_id = reserve_eaten(store)
        before = store.read.charged_bytes()
        end(store, job_id, ("stdout", {"line": line, "eol": True}))
        charges[line] = store.read.charged_bytes() - before
    job_id = reserve_eaten(store)
    exact = store.read.charged_bytes() + charges[line]
    output = ("stdout", {"line": line, "eol": True})
    store = reopen(tenant=exact - 1)
    with unchanged(store), pytest.raises(TenantQuotaError):
        end(store, job_id, output)
    store = reopen(tenant=exact)
    assert end(store, job_id, output) is not None
    assert store.read.charged_bytes() == exact


def test_an_ending_that_gives_back_more_than_it_adds_is_taken_with_its_output(
    reopen: Reopen,
) -> None:
    job_id = Jobs(reopen()).running()
    store = reopen(overall=1)
    assert end(store, job_id, ("stdout", {"line": "x" * 11 * MIB, "eol": True})) is not None


def test_nothing_but_new_jobs_and_output_is_refused(reopen: Reopen) -> None:
    jobs = Jobs(reopen())
    queued, waived, signed = jobs.accept(key="k"), jobs.finished(), jobs.finished()
    fingerprint_of_queued = jobs.acceptance(key="k")
    store = reopen(overall=1)
    jobs = Jobs(store)
    assert jobs.submit(fingerprint_of_queued) == Replayed(job_id=queued)
    assert store.call(CancelQueued(tenant="acme", job_id=queued, now_ms=CLOCK())) is not None
    store.call(FailAttestation(job_id=waived, code="too_large", now_ms=1, profile="1"))
    assert store.call(RetryAttestations(job_ids=None, now_ms=2)) == (waived,)
    charged = store.read.charged_bytes()
    store.call(jobs.attestation(signed, result_artifact=b"a" * 16 * MIB, envelope=b"e" * 2 * MIB))
    assert store.read.charged_bytes() < charged, "a signature fits in what was reserved for it"


def test_the_disk_is_asked_for_the_reserve_all_reservations_and_the_charge_to_the_byte(
    reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reopen()
    Jobs(store).accept()
    charge = store.read.charged_bytes()
    signed = Jobs(store).finished()
    store.call(Jobs(store).attestation(signed))
    outstanding = RESERVE_ACCEPTED
    free = 1000 * MIB
    for _ in range(3):
        store = reopen(free=free)
        jobs = Jobs(store)
        needed = free + outstanding + charge
        monkeypatch.setattr(quota, "free_bytes", lambda directory: needed - 1)  # noqa: B023
        with unchanged(store), pytest.raises(ReserveReachedError) as caught:
            jobs.accept()
        assert caught.value.detail == {"needed_bytes": needed, "available_bytes": needed - 1}
        monkeypatch.setattr(quota, "free_bytes", lambda directory: needed)  # noqa: B023
        jobs.accept()
        outstanding += RESERVE_ACCEPTED
        pending = jobs_ended(store, monkeypatch)
        assert pending == RESERVE_PENDING
        outstanding += pending


def jobs_ended(store: Store, monkeypatch: pytest.MonkeyPatch) -> int:
    """End one more job; return what it holds for its signature."""
    monkeypatch.setattr(quota, "free_bytes", lambda directory: PLENTY)
    before = store.read.storage_usage().reserved_bytes
    Jobs(store).finished()
    return store.read.storage_usage().reserved_bytes - before


def test_the_disk_is_asked_first_then_the_tenant_then_everybody(
    reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reopen(overall=2, tenant=1, free=1)
    monkeypatch.setattr(quota, "free_bytes", lambda directory: 0)
    with pytest.raises(StorageFullError):
        Jobs(store).accept()
    monkeypatch.setattr(quota, "free_bytes", lambda directory: PLENTY)
    with pytest.raises(TenantQuotaError):
        Jobs(store).accept()
    store = reopen(overall=2, free=0)
    monkeypatch.setattr(quota, "free_bytes", lambda directory: 1 // 0)
    with pytest.raises(TenantQuotaError):
        Jobs(store).accept()


def test_the_free_bytes_are_those_of_the_file_system_and_a_failure_refuses(
    reopen: Reopen, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reopen(free=1)
    assert 0 < quota.free_bytes(path.parent) < 1 << 60
    Jobs(store).accept()

    def broken(directory: object) -> Any:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(quota.os, "statvfs", broken)
    with unchanged(store), pytest.raises(StorageUnavailableError) as caught:
        Jobs(store).accept()
    assert caught.value.code == "storage_unavailable"


def test_many_threads_fill_a_quota_exactly(reopen: Reopen) -> None:
    store = reopen()
    Jobs(store).accept()
    one = store.read.charged_bytes()
    store = reopen(tenant=8 * one)
    messages = [Jobs(store).acceptance() for _ in range(24)]
    start, refused = threading.Barrier(len(messages)), []

    def create(message: Any) -> None:
        start.wait(30)
        try:
            store.call(message)
        except TenantQuotaError:
            refused.append(message.job_id)

    threads = [threading.Thread(target=create, args=(message,)) for message in messages]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(refused) == 24 - 7
    assert store.read.charged_bytes() == 8 * one
    store = reopen(tenant=8 * one)
    with unchanged(store), pytest.raises(TenantQuotaError):
        Jobs(store).accept()


def test_what_retention_removes_is_room_again(reopen: Reopen) -> None:
    store = reopen()
    done = Jobs(store).finished(key="k")
    store.call(Jobs(store).attestation(done, result_artifact=b"a" * MIB))
    Jobs(store).accept()
    store = reopen(tenant=store.read.charged_bytes() + RESERVE_ACCEPTED + MIB)
    with unchanged(store), pytest.raises(TenantQuotaError):
        Jobs(store).accept(spec=JobSpec(language="bash", code="x" * MIB))
    assert store.call(Sweep(now_ms=CLOCK() + 1, age_ms=0)).jobs_deleted == 1
    Jobs(store).accept(spec=JobSpec(language="bash", code="x" * MIB))


def test_usage_tells_what_is_there_and_what_is_promised(reopen: Reopen) -> None:
    store = reopen()
    jobs = Jobs(store)
    jobs.accept(tenant="a")
    signed = jobs.finished(tenant="b")
    jobs.finished(tenant="b")
    store.call(jobs.attestation(signed))
    ours, theirs, all_of_it = (store.read.storage_usage(who) for who in ("a", "b", None))
    assert ours.reserved_bytes == RESERVE_ACCEPTED
    assert theirs.reserved_bytes == RESERVE_PENDING
    assert all_of_it.reserved_bytes == RESERVE_ACCEPTED + RESERVE_PENDING
    assert all_of_it.retained_bytes == ours.retained_bytes + theirs.retained_bytes
    assert all_of_it.charged_bytes == store.read.charged_bytes()
    assert store.read.storage_usage("nobody").charged_bytes == 0
