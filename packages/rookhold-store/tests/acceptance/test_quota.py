"""S22, S24 to S26 and S29: what a job is charged, and who is refused for it."""

import threading
from pathlib import Path

import pytest

from rookhold_store import (
    FailAttestation,
    GlobalQuotaError,
    QuotaError,
    RecoverRunning,
    RetryAttestations,
    StorageFullError,
    StorageLimits,
    Store,
    TenantQuotaError,
    WaiveAttestation,
)
from rookhold_store.accounting import RESERVE_ACCEPTED, RESERVE_PENDING, findings
from rookhold_store.testing import Jobs, TickingClock, anything_binds, tampering_connection

MIB = 1024 * 1024
PLENTY = 1 << 50
JOB_ID = "01900000-0000-7000-8000-000000000001"
CLOCK = TickingClock()


def opened(path: Path, *, tenant: int = PLENTY, overall: int = PLENTY, free: int = 0) -> Store:
    limits = StorageLimits(global_bytes=overall, tenant_bytes=tenant, free_reserve_bytes=free)
    return Store.open(path, binding=anything_binds, clock=CLOCK, limits=limits)


def rows(path: Path) -> dict[str, int]:
    """Return how many rows each table holds of which a job has some."""
    db = tampering_connection(path)
    tables = ("jobs", "events", "idempotency_keys", "job_storage_usage", "tenant_storage_usage")
    counts = {table: db.execute(f"SELECT count(*) FROM {table}").get for table in tables}
    db.close()
    return counts


def sound(path: Path) -> bool:
    db = tampering_connection(path)
    found = findings(db)
    db.close()
    return found == []


def test_s22_an_impossible_disk_reserve_refuses_a_job_and_neither_opening_nor_recovery(
    path: Path,
) -> None:
    with opened(path) as store:
        running = Jobs(store).running()
        queued = Jobs(store).accept()
    before = rows(path)
    with opened(path, free=1 << 62) as store:
        with pytest.raises(StorageFullError) as caught:
            Jobs(store).accept(key="k")
        assert (caught.value.code, caught.value.retryable) == ("storage_reserve", True)
        assert rows(path) == before
        assert store.read.find_key("acme", "k") is None
        assert store.call(RecoverRunning(job_id=running, now_ms=CLOCK())) is not None
        assert Jobs(store).start(queued) is not None
    assert sound(path)


def test_s24_a_key_is_charged_to_the_byte_and_may_be_what_the_tenant_has_no_room_for(
    path: Path,
) -> None:
    with opened(path) as store:
        jobs = Jobs(store)
        plain_id = jobs.accept(tenant="plain")
        keyed_id = jobs.accept(tenant="keyed", key="a-key")
        plain = store.read.charged_bytes("plain")
        keyed = store.read.charged_bytes("keyed")
    assert len(plain_id) == len(keyed_id)
    assert keyed - plain == 64 + len("keyed") + len("a-key") + 64 + len(keyed_id)
    path = path.with_name("exact.db")
    with opened(path, tenant=plain) as store:
        jobs = Jobs(store)
        with pytest.raises(TenantQuotaError):
            jobs.accept(tenant="plain", key="k")
        jobs.accept(tenant="plain")
        assert store.read.charged_bytes("plain") == plain
    with opened(path.with_name("short.db"), tenant=plain - 1) as store, pytest.raises(QuotaError):
        Jobs(store).accept(tenant="plain")


def test_s25_the_second_job_of_a_tenant_and_the_fourth_of_all_are_refused_and_leave_nothing(
    path: Path,
) -> None:
    with opened(path) as store:
        Jobs(store).accept(tenant="t0")
        one = store.read.charged_bytes()
    path = path.with_name("three.db")
    for attempt in range(2):
        with opened(path, tenant=2 * one - 1, overall=4 * one - 1) as store:
            jobs = Jobs(store)
            if attempt == 0:
                for tenant in ("t0", "t1", "t2"):
                    jobs.accept(tenant=tenant)
            before = rows(path)
            with pytest.raises(TenantQuotaError) as own:
                jobs.accept(tenant="t0", key="k")
            with pytest.raises(GlobalQuotaError) as overall:
                jobs.accept(tenant="t3", key="k")
            assert (own.value.code, own.value.retryable) == ("tenant_storage_quota", True)
            assert (overall.value.code, overall.value.retryable) == ("storage_capacity", True)
            assert rows(path) == before
            assert store.read.charged_bytes() == 3 * one
            assert store.read.charged_bytes("t3") == 0
        assert sound(path)


def race(store: Store, tenants: tuple[str, str]) -> list[str]:
    """Have two threads create a job at once; return how it ended for each."""
    messages = [Jobs(store).acceptance(tenant=tenant) for tenant in tenants]
    both, outcomes = threading.Barrier(2), [""] * 2

    def create(place: int) -> None:
        both.wait(30)
        try:
            store.call(messages[place])
        except QuotaError as refused:
            outcomes[place] = refused.code
        else:
            outcomes[place] = "created"

    threads = [threading.Thread(target=create, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return outcomes


@pytest.mark.parametrize("same_tenant", [True, False])
def test_s26_of_two_racing_creates_with_room_for_one_exactly_one_succeeds(
    path: Path, same_tenant: bool
) -> None:
    with opened(path) as store:
        Jobs(store).accept(tenant="a")
        one = store.read.charged_bytes()
    tenants = ("a", "a") if same_tenant else ("a", "b")
    for turn in range(10):
        room = {"tenant": one} if same_tenant else {"tenant": one, "overall": one}
        with opened(path.with_name(f"race-{turn}.db"), **room) as store:
            outcomes = race(store, tenants)
            code = "tenant_storage_quota" if same_tenant else "storage_capacity"
            assert sorted(outcomes) == sorted(["created", code])
            assert len(store.read.list_jobs(None)) == 1
            assert store.read.charged_bytes() == one


def test_s29_a_waived_job_is_pending_with_20_mib_after_a_reopen_and_fills_the_quota(
    path: Path,
) -> None:
    with opened(path) as store:
        job_id = Jobs(store).finished()
        store.call(WaiveAttestation(job_id=job_id))
        retained = store.read.charged_bytes()
    row = 64 + len(job_id)  # of the outbox
    full = retained + row + RESERVE_PENDING
    with opened(path, tenant=full + RESERVE_ACCEPTED) as store:
        assert store.read.charged_bytes() == full
        with pytest.raises(TenantQuotaError):
            Jobs(store).accept()
        store.call(WaiveAttestation(job_id=job_id))
        assert store.read.charged_bytes() == retained
        Jobs(store).accept()
    assert sound(path)


def test_s29_an_explicit_waiver_holds_nothing_until_a_retry_or_another_profile(
    path: Path,
) -> None:
    def reserved() -> int:
        with opened(path) as store:
            return store.read.storage_usage().reserved_bytes

    with opened(path) as store:
        job_id = Jobs(store).finished()
        store.call(FailAttestation(job_id=job_id, code="too_large", now_ms=1, profile="1"))
    assert reserved() == 0
    with opened(path) as store:
        assert store.call(RetryAttestations(job_ids=[job_id], now_ms=2)) == (job_id,)
        assert store.read.storage_usage().reserved_bytes == RESERVE_PENDING
        store.call(FailAttestation(job_id=job_id, code="too_large", now_ms=3, profile="1"))
    assert reserved() == 0
    limits = StorageLimits(global_bytes=1, tenant_bytes=1)  # opening never fails for a quota
    with Store.open(path, profile="2", clock=CLOCK, limits=limits) as store:
        assert store.read.storage_usage().reserved_bytes == RESERVE_PENDING
        store.call(FailAttestation(job_id=job_id, code="too_large", now_ms=4, profile="2"))
    assert sound(path)
