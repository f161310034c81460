"""S5, S18 and S31: what retention removes, in which steps, and what a failure leaves."""

from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest

from rookhold_store import (
    Accepted,
    Append,
    CancelQueued,
    StorageUnavailableError,
    Store,
    Sweep,
    WaiveAttestation,
    retention,
)
from rookhold_store.accounting import findings
from rookhold_store.rows import Cursor
from rookhold_store.testing import Jobs, anything_binds
from rookhold_types.jobs import JobSpec

SPEC = JobSpec(language="python", code="print(6*7)")


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction also ends for its time; on a busy machine that must not decide here."""
    monkeypatch.setattr(retention, "WORK_SECONDS", 60.0)


def long_history(jobs: Jobs, events: int, key: str) -> str:
    """Return a job that ended with exactly this many events."""
    job_id = jobs.running(key=key, spec=SPEC)
    left = events - 3  # accepted, started, finished
    while left:
        lines = ["a line of output"] * min(left, 256)
        jobs.append(job_id, *lines)
        left -= len(lines)
    jobs.finalise(job_id)
    return job_id


def sizes(rows: Sequence[tuple[int, ...]]) -> int:
    return sum(64 + sum(row) for row in rows)


def test_s5_two_tenants_do_not_meet_and_pruning_takes_one_job_with_its_events(
    store: Store, jobs: Jobs
) -> None:
    ours = [jobs.finished(tenant="acme") for _ in range(3)]
    theirs = [jobs.finished(tenant="globex") for _ in range(2)]
    waiting = jobs.accept(tenant="globex")
    foreign = CancelQueued(tenant="acme", job_id=waiting, now_ms=store.clock())
    assert store.call(foreign) is None
    pages = []
    cursor: Cursor | None = None
    while page := store.read.list_jobs("acme", limit=1, cursor=cursor):
        cursor = Cursor(page[0].created_at_ms, page[0].job_id)
        pages.append(page[0].job_id)
    assert pages == ours[::-1]
    assert [row.job_id for row in store.read.list_jobs("globex", status="queued")] == [waiting]
    assert [event.seq for event in store.read.events_after(ours[0], 2)] == [3, 4]

    swept = store.call(Sweep(now_ms=store.clock(), age_ms=0, max_jobs=1))
    assert (swept.jobs_deleted, swept.events_deleted, swept.more_remaining) == (1, 4, True)
    assert swept.hidden == (ours[0],)
    assert store.read.get(None, ours[0]) is None
    assert store.read.events_after(ours[0]) == ()

    swept = store.call(Sweep(now_ms=store.clock(), age_ms=0))
    assert (swept.jobs_deleted, swept.events_deleted, swept.more_remaining) == (4, 16, False)
    assert set(swept.hidden) == {*ours[1:], *theirs}
    assert [row.job_id for row in store.read.list_jobs(None)] == [waiting]


def test_s18_a_failed_commit_of_retention_leaves_the_job_and_later_writes_work(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    job_id = jobs.finished(key="k")
    before = (store.read.get(None, job_id), store.read.charged_bytes())
    sweep = Sweep(now_ms=store.clock(), age_ms=0)
    answers = iter([True])
    store._writer._db.set_commit_hook(lambda: next(answers, False))
    with pytest.raises(StorageUnavailableError):
        store.call(sweep)
    assert (store.read.get(None, job_id), store.read.charged_bytes()) == before
    assert store.read.last_seq(job_id) == 4
    assert store.read.find_key("acme", "k") is not None
    later = jobs.finished()
    assert findings(raw) == []
    assert store.call(sweep).hidden == (job_id,)
    assert [row.job_id for row in store.read.list_jobs(None)] == [later]
    assert findings(raw) == []


@pytest.mark.parametrize("signed", [True, False])
def test_s31_a_longer_history_goes_newest_first_and_is_hidden_meanwhile(
    path: Path, *, signed: bool
) -> None:
    with Store.open(path, binding=anything_binds) as store:
        jobs = Jobs(store)
        job_id = long_history(jobs, 4096 + 10, "k")
        if signed:
            store.call(jobs.attestation(job_id))
        else:
            store.call(WaiveAttestation(job_id=job_id))
        raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        key = sizes(
            raw.execute(
                "SELECT octet_length(tenant), octet_length(idempotency_key),"
                " octet_length(request_sha256), octet_length(job_id) FROM idempotency_keys"
            ).fetchall()
        )
        receipt = raw.execute("SELECT octet_length(receipt_json) FROM jobs").get
        newest = sizes(
            raw.execute(
                "SELECT octet_length(kind), octet_length(data_json), octet_length(prev_hash),"
                " octet_length(event_hash) FROM events WHERE seq > 10"
            ).fetchall()
        )
        before = store.read.charged_bytes("acme")
        sweep = Sweep(now_ms=store.clock() + 1, age_ms=0)

        swept = store.call(sweep)
        assert (swept.jobs_deleted, swept.events_deleted, swept.more_remaining) == (0, 4096, True)
        assert swept.hidden == (job_id,)
        assert store.read.charged_bytes("acme") == before - key - receipt - newest
        assert store.read.charged_bytes() == store.read.charged_bytes("acme")
        assert findings(raw) == []
        assert store.read.last_seq(job_id) == 10, "the newest go first"
        raw.close()

    with Store.open(path, binding=anything_binds) as store:
        jobs = Jobs(store)
        assert_hidden(store, job_id)
        with pytest.raises(Exception, match="no such job"):
            store.call(Append(job_id=job_id, events=[("stdout", {})], now_ms=store.clock()))
        again = store.call(jobs.acceptance(key="k", spec=SPEC))
        assert isinstance(again, Accepted), "its key is free"

        swept = store.call(sweep)
        assert (swept.jobs_deleted, swept.events_deleted, swept.more_remaining) == (1, 10, False)
        assert swept.hidden == (), "it was hidden before"
        raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        assert findings(raw) == []
        for table in ("events", "job_attestations", "retention_tombstones", "job_storage_usage"):
            assert not raw.execute(f"SELECT 1 FROM {table} WHERE job_id = ?", (job_id,)).get
        raw.close()


def assert_hidden(store: Store, job_id: str) -> None:
    read = store.read
    assert read.get(None, job_id) is None
    assert read.summary(None, job_id) is None
    assert read.list_jobs(None) == ()
    assert read.list_jobs("acme", status="succeeded") == ()
    assert read.replay(None, job_id) is None
    assert read.attestation(None, job_id) is None
    assert read.attestation_status(None, job_id) is None
    assert read.find_key("acme", "k") is None
    assert read.pending_attestations(read_time(store)) == ()


def read_time(store: Store) -> int:
    return store.clock() + 1_000_000
