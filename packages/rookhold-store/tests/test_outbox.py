import pytest

from rookhold_store import (
    CancelQueued,
    DeferAttestation,
    FailAttestation,
    InvalidOperationError,
    RecoverRunning,
    RetryAttestations,
    Store,
    WaiveAttestation,
)
from rookhold_store.accounting import RESERVE_PENDING
from rookhold_store.testing import Jobs

FAR = 10**15


def pending(store: Store, now_ms: int = FAR) -> list[str]:
    return [row.job_id for row in store.read.pending_attestations(now_ms)]


def reserve(store: Store, job_id: str) -> int:
    with store.read._use() as db:
        value: int = db.execute(
            "SELECT reserved_bytes FROM job_storage_usage WHERE job_id = ?", (job_id,)
        ).get
    return value


def fail(store: Store, job_id: str, profile: str = "1") -> bool:
    return store.call(
        FailAttestation(job_id=job_id, code="artifact_too_large", now_ms=77, profile=profile)
    )


def test_every_ending_lists_the_job_for_signing(store: Store, jobs: Jobs) -> None:
    ended, queued, lost = jobs.finished(), jobs.accept(), jobs.running()
    store.call(CancelQueued(tenant="acme", job_id=queued, now_ms=store.clock()))
    store.call(RecoverRunning(job_id=lost, now_ms=store.clock()))
    assert pending(store) == [ended, queued, lost]
    row = store.read.outbox(ended)
    job = store.read.get("acme", ended)
    assert row is not None
    assert job is not None
    assert row.pending_since_ms == row.next_attempt_ms == job.finished_at_ms
    assert (row.attempt_count, row.failed) == (0, False)


def test_what_is_not_due_waits(store: Store, jobs: Jobs) -> None:
    job_id = jobs.finished()
    row = store.read.outbox(job_id)
    assert row is not None
    assert pending(store, row.next_attempt_ms - 1) == []
    assert pending(store, row.next_attempt_ms) == [job_id]


def test_a_clock_set_back_by_an_hour_delays_no_signature(store: Store, jobs: Jobs) -> None:
    early = jobs.finished()
    deferred = jobs.finished()
    now = store.clock()
    store.call(DeferAttestation(job_id=deferred, now_ms=now, delay_ms=60_000))
    before = now - 3_600_000
    assert pending(store, before) == [early, deferred]
    assert pending(store, now) == [early]  # a delay that can have been asked for is kept
    for at, limit in ((before, 1), (now + 60_000, 1)):
        assert [row.job_id for row in store.read.pending_attestations(at, limit)] == [early]


def test_a_deferred_job_is_counted_and_goes_behind_the_others(store: Store, jobs: Jobs) -> None:
    first, second = jobs.finished(), jobs.finished()
    now = store.clock()
    assert store.call(DeferAttestation(job_id=first, now_ms=now, delay_ms=60_000)) is True
    row = store.read.outbox(first)
    assert row is not None
    assert (row.attempt_count, row.next_attempt_ms) == (1, now + 60_000)
    assert pending(store) == [second, first]
    assert store.call(DeferAttestation(job_id="unknown", now_ms=now, delay_ms=100)) is False


@pytest.mark.parametrize("delay_ms", [99, 60_001])
def test_a_delay_out_of_range_is_refused(store: Store, jobs: Jobs, delay_ms: int) -> None:
    with pytest.raises(InvalidOperationError):
        store.call(DeferAttestation(job_id=jobs.finished(), now_ms=1, delay_ms=delay_ms))


def test_waiving_removes_the_row_and_its_reserve_until_the_next_open(
    store: Store, jobs: Jobs
) -> None:
    job_id = jobs.finished()
    assert reserve(store, job_id) == RESERVE_PENDING
    assert store.call(WaiveAttestation(job_id=job_id)) is True
    assert store.call(WaiveAttestation(job_id=job_id)) is False
    assert (store.read.outbox(job_id), reserve(store, job_id)) == (None, 0)
    store.close()
    with Store.open(store.path) as again:
        job = again.read.get("acme", job_id)
        row = again.read.outbox(job_id)
        assert job is not None
        assert row is not None
        assert row.pending_since_ms == row.next_attempt_ms == job.finished_at_ms
        assert (row.attempt_count, reserve(again, job_id)) == (0, RESERVE_PENDING)


def test_an_explicit_waiver_says_why_and_survives_a_reopen(store: Store, jobs: Jobs) -> None:
    job_id = jobs.finished()
    assert fail(store, job_id) is True
    assert fail(store, job_id) is False
    assert pending(store) == []
    store.close()
    with Store.open(store.path) as again:
        row = again.read.outbox(job_id)
        assert row is not None
        assert (row.failed_at_ms, row.failure_code, row.failure_profile) == (
            77,
            "artifact_too_large",
            "1",
        )
        assert (pending(again), reserve(again, job_id)) == ([], 0)
        assert again.call(WaiveAttestation(job_id=job_id)) is False
        assert again.call(DeferAttestation(job_id=job_id, now_ms=1, delay_ms=100)) is False


def test_a_changed_profile_takes_explicit_waivers_up_again(store: Store, jobs: Jobs) -> None:
    old, new = jobs.finished(), jobs.finished()
    fail(store, old)
    fail(store, new, profile="2")
    store.close()
    with Store.open(store.path, profile="2") as again:
        assert pending(again) == [old]
        assert (reserve(again, old), reserve(again, new)) == (RESERVE_PENDING, 0)


def test_a_retry_makes_named_waivers_pending_or_all_of_them(store: Store, jobs: Jobs) -> None:
    ids = [jobs.finished() for _ in range(4)]
    for job_id in ids[:3]:
        fail(store, job_id)
    named = store.call(RetryAttestations(job_ids=[ids[0], ids[3], "unknown"], now_ms=FAR - 5))
    assert named == (ids[0],)
    row = store.read.outbox(ids[0])
    assert row is not None
    assert (row.attempt_count, row.next_attempt_ms, row.failed) == (0, FAR - 5, False)
    assert reserve(store, ids[0]) == RESERVE_PENDING
    assert sorted(store.call(RetryAttestations(job_ids=None, now_ms=FAR))) == ids[1:3]
    assert store.call(RetryAttestations(job_ids=None, now_ms=FAR)) == ()


def test_an_open_lists_nothing_twice(store: Store, jobs: Jobs) -> None:
    signed, listed = jobs.finished(), jobs.finished()
    jobs.running()
    store.call(jobs.attestation(signed))
    charged = store.read.charged_bytes()
    for _ in range(2):
        store.close()
        store = Store.open(store.path)
        assert pending(store) == [listed]
        assert store.read.charged_bytes() == charged
    store.close()


@pytest.mark.parametrize(("code", "profile"), [(" ", "1"), ("x" * 129, "1"), ("code", "")])
def test_a_waiver_names_its_code_and_profile(
    store: Store, jobs: Jobs, code: str, profile: str
) -> None:
    with pytest.raises(InvalidOperationError):
        store.call(FailAttestation(job_id=jobs.finished(), code=code, now_ms=1, profile=profile))
