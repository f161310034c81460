import apsw
import pytest

from rookhold_store import (
    Append,
    InvalidOperationError,
    JobEndedError,
    JobNotFoundError,
    RecordRefusedError,
    Start,
    Store,
)
from rookhold_store.testing import Jobs
from rookhold_types.canonical import canonical_sha256
from rookhold_types.errors import CanonicalError
from rookhold_types.events import check_chain
from rookhold_types.isolation import IsolationClass
from rookhold_types.jobs import JobSpec, Requirements
from rookhold_types.receipts import placeholder_spec

STRICT_SPEC = JobSpec(
    language="python",
    code="pass",
    requirements=Requirements(minimum_isolation=IsolationClass.LINUX_SHARED_KERNEL),
)


def test_a_start_stores_the_placeholder_and_its_digest(store: Store, jobs: Jobs) -> None:
    job_id = jobs.accept(spec=STRICT_SPEC)
    started = jobs.start(job_id)
    assert started is not None
    row = store.read.get("acme", job_id)
    assert row is not None
    assert (row.status, row.started_at_ms) == ("running", started.event.ts_ms)
    placeholder = placeholder_spec(STRICT_SPEC.requirements)
    assert started.event.data == {
        "status": "running",
        "initial_effective_spec_sha256": canonical_sha256(placeholder),
    }
    assert row.effective_spec_json is not None
    assert "linux-shared-kernel" in row.effective_spec_json


def test_only_a_queued_job_starts(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    assert jobs.start(job_id) is None
    assert jobs.start("unknown") is None
    jobs.finalise(job_id)
    assert jobs.start(job_id) is None
    assert store.read.last_seq(job_id) == 3


def test_a_batch_keeps_order_numbers_and_links(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    events = jobs.append(job_id, "one", "two", "three")
    assert [event.seq for event in events] == [3, 4, 5]
    assert len({event.ts_ms for event in events}) == 1
    stored = store.read.events_after(job_id)
    assert stored[2:] == events
    chain = check_chain(job_id, stored)
    assert chain.complete
    assert chain.head == events[-1].event_hash


def test_an_empty_batch_is_nothing_even_for_an_unknown_job(store: Store) -> None:
    assert store.call(Append(job_id="unknown", events=(), now_ms=1)) == ()


def test_a_batch_may_have_256_events_and_not_257(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    assert len(jobs.append(job_id, *["x"] * 256)) == 256
    with pytest.raises(InvalidOperationError):
        jobs.append(job_id, *["x"] * 257)
    assert store.read.last_seq(job_id) == 258


def test_a_failure_inside_a_batch_leaves_nothing_of_it(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    job_id = jobs.running()
    raw.execute(
        "CREATE TRIGGER sabotage BEFORE INSERT ON events WHEN NEW.data_json LIKE '%two%' "
        "BEGIN SELECT RAISE(ABORT, 'sabotage'); END"
    )
    with pytest.raises(RecordRefusedError):
        jobs.append(job_id, "one", "two", "three")
    assert store.read.last_seq(job_id) == 2
    raw.execute("DROP TRIGGER sabotage")
    assert [event.seq for event in jobs.append(job_id, "again")] == [3]


def test_data_without_canonical_form_is_refused_before_anything_is_written(
    store: Store, jobs: Jobs
) -> None:
    job_id = jobs.running()
    with pytest.raises(CanonicalError):
        store.call(Append(job_id=job_id, events=[("stdout", {"line": 0.5})], now_ms=1))
    assert store.read.last_seq(job_id) == 2


def test_two_jobs_written_in_turn_are_numbered_each_from_one(store: Store, jobs: Jobs) -> None:
    first, second = jobs.running(), jobs.running()
    for turn in range(5):
        jobs.append(first, f"a{turn}")
        jobs.append(second, f"b{turn}", "more")
    for job_id, count in ((first, 7), (second, 12)):
        events = store.read.events_after(job_id)
        assert [event.seq for event in events] == list(range(1, count + 1))
        assert check_chain(job_id, events).complete


def test_nothing_is_appended_to_an_unknown_or_an_ended_job(store: Store, jobs: Jobs) -> None:
    with pytest.raises(JobNotFoundError):
        jobs.append("unknown", "x")
    job_id = jobs.finished()
    with pytest.raises(JobEndedError):
        jobs.append(job_id, "late")
    assert store.read.events_after(job_id)[-1].kind == "finished"


@pytest.mark.parametrize("kind", ["accepted", "started", "finished", " "])
def test_lifecycle_events_are_not_appended_by_hand(store: Store, jobs: Jobs, kind: str) -> None:
    job_id = jobs.running()
    with pytest.raises(InvalidOperationError):
        store.call(Append(job_id=job_id, events=[(kind, {})], now_ms=1))


def test_a_nul_byte_in_the_output_is_stored_like_any_other(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    jobs.append(job_id, "a\x00b")
    assert store.read.events_after(job_id, 2)[0].data == {"line": "a\x00b", "eol": True}


def test_a_stored_spec_without_requirements_still_starts(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    job_id = jobs.accept()
    raw.execute("DROP TRIGGER jobs_identity")
    raw.execute("""UPDATE jobs SET spec_json = '{"legacy_invalid_spec_json":"?"}'""")
    assert store.call(Start(job_id=job_id, now_ms=9)) is not None
