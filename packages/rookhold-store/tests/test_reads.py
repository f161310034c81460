from collections.abc import Callable
from typing import Any

import apsw
import pytest

from rookhold_store import (
    CancelQueued,
    Counts,
    Cursor,
    InvalidOperationError,
    Snapshot,
    StorageUnavailableError,
    Store,
)
from rookhold_store.reads import Reads
from rookhold_store.testing import Jobs
from rookhold_types.jobs import JobSpec

BASH = JobSpec(language="bash", code="true")


def test_lists_are_newest_first_and_pages_do_not_overlap(store: Store, jobs: Jobs) -> None:
    ids = [jobs.accept() for _ in range(25)][::-1]
    jobs.accept(tenant="globex")
    seen: list[str] = []
    cursor: Cursor | None = None
    while page := store.read.list_jobs("acme", 10, cursor):
        seen += [row.job_id for row in page]
        cursor = Cursor(page[-1].created_at_ms, page[-1].job_id)
    assert seen == ids


def test_equal_times_are_ordered_by_id(store: Store, jobs: Jobs) -> None:
    store.clock = lambda: 5
    ids = sorted((jobs.accept() for _ in range(6)), reverse=True)
    first = store.read.list_jobs("acme", 3)
    rest = store.read.list_jobs("acme", 5, Cursor(5, first[-1].job_id))
    assert [row.job_id for row in (*first, *rest)] == ids
    assert [row.job_id for row in store.read.queued_page(None, 6)] == ids[::-1]


def test_filters_are_exact_and_stay_within_the_tenant(store: Store, jobs: Jobs) -> None:
    python, bash, done = jobs.accept(), jobs.accept(spec=BASH), jobs.finished(spec=BASH)
    foreign = jobs.accept(tenant="globex", spec=BASH)

    def found(**filters: Any) -> list[str]:
        return [row.job_id for row in store.read.list_jobs("acme", **filters)]

    assert found() == [done, bash, python]
    assert found(status="queued") == [bash, python]
    assert found(language="bash") == [done, bash]
    assert found(language="bash", status="queued") == [bash]
    assert found(status="oom_killed") == []
    assert [row.job_id for row in store.read.list_jobs(None)] == [foreign, done, bash, python]


def test_another_tenants_job_reads_like_one_that_is_not_there(store: Store, jobs: Jobs) -> None:
    job_id = jobs.finished()
    reads = store.read
    for lookup in (reads.get, reads.summary, reads.attestation, reads.attestation_status):
        assert lookup("globex", job_id) is None
    assert reads.replay("globex", job_id) is None
    assert reads.list_jobs("globex") == ()
    assert reads.list_jobs(" ") == ()
    assert reads.summary(None, job_id) is not None


def test_the_look_ahead_page_holds_501_rows_and_no_more(store: Store, jobs: Jobs) -> None:
    futures = [store.submit(jobs.acceptance()) for _ in range(502)]
    for future in futures:
        future.result(timeout=60)
    assert len(store.read.list_jobs("acme", 501)) == 501
    assert len(store.read.list_jobs("acme", 500)) == 500
    for limit in (0, 502):
        with pytest.raises(InvalidOperationError):
            store.read.list_jobs("acme", limit)


def test_limits_out_of_range_are_refused(store: Store) -> None:
    for call, most in (
        (lambda n: store.read.events_after("x", 0, n), 5000),
        (lambda n: store.read.queued_page(None, n), 1024),
        (lambda n: store.read.running_ids(n), 100_000),
        (lambda n: store.read.pending_attestations(0, n), 256),
    ):
        assert call(most) == ()
        for limit in (0, most + 1):
            with pytest.raises(InvalidOperationError):
                call(limit)


def test_an_unreadable_spec_spoils_full_reads_and_nothing_else(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    broken, sound = jobs.accept(), jobs.accept()
    raw.execute("DROP TRIGGER jobs_identity")
    raw.execute("PRAGMA ignore_check_constraints = ON")
    raw.execute("UPDATE jobs SET spec_json = CAST(x'ff' AS TEXT) WHERE job_id = ?", (broken,))
    assert [row.job_id for row in store.read.list_jobs("acme")] == [sound, broken]
    assert store.read.summary("acme", broken) is not None
    assert len(store.read.queued_page()) == 2
    with pytest.raises(StorageUnavailableError):
        store.read.get("acme", broken)
    assert store.read.get("acme", sound) is not None
    raw.execute("PRAGMA ignore_check_constraints = OFF")
    assert store.call(CancelQueued(tenant="acme", job_id=broken, now_ms=9)) is not None


def test_the_event_cursor_is_exclusive_and_a_negative_one_is_the_start(
    store: Store, jobs: Jobs
) -> None:
    job_id = jobs.finished()
    assert [event.seq for event in store.read.events_after(job_id, -5)] == [1, 2, 3, 4]
    assert [event.seq for event in store.read.events_after(job_id, 2, 1)] == [3]
    assert store.read.events_after(job_id, 4) == ()


def test_a_replay_is_complete_at_the_end_of_a_terminal_job_only(store: Store, jobs: Jobs) -> None:
    running, ended = jobs.running(), jobs.finished()
    pages = [
        store.read.replay("acme", running, 0),
        store.read.replay("acme", ended, 0, 3),
        store.read.replay("acme", ended, 3),
        store.read.replay("acme", ended, 4),
    ]
    assert [page.complete for page in pages if page is not None] == [False, False, True, True]


def test_the_queue_is_read_oldest_first_and_survives_a_cancel_between_pages(
    store: Store, jobs: Jobs
) -> None:
    ids = [jobs.accept() for _ in range(6)]
    jobs.running()
    first = store.read.queued_page(None, 3)
    store.call(CancelQueued(tenant="acme", job_id=ids[0], now_ms=store.clock()))
    rest = store.read.queued_page(first[-1].cursor, 100)
    assert [row.job_id for row in (*first, *rest)] == ids
    assert {row.admitted_mem_mb for row in rest} == {256}


def test_counts_are_of_unfinished_jobs_of_one_tenant(store: Store, jobs: Jobs) -> None:
    jobs.accept()
    jobs.accept()
    jobs.running()
    jobs.finished()
    jobs.accept(tenant="globex")
    assert store.read.counts("acme") == Counts(queued=2, running=1)
    assert store.read.counts("initech") == Counts(queued=0, running=0)


def test_what_a_job_holds_grows_with_its_events_and_is_nothing_without_it(
    store: Store, jobs: Jobs
) -> None:
    job_id = jobs.running()
    before = store.read.retained_bytes(job_id)
    jobs.append(job_id, "x" * 1000)
    assert store.read.retained_bytes(job_id) > before + 1000
    assert store.read.retained_bytes("missing") == 0


def test_tombstoned_jobs_are_invisible(store: Store, jobs: Jobs, raw: apsw.Connection) -> None:
    job_id = jobs.finished(key="k")
    store.call(jobs.attestation(job_id))
    raw.execute("INSERT INTO retention_tombstones VALUES (?, 1)", (job_id,))
    reads = store.read
    assert (reads.get("acme", job_id), reads.summary(None, job_id)) == (None, None)
    assert (reads.list_jobs("acme"), reads.find_key("acme", "k")) == ((), None)
    assert (reads.replay("acme", job_id), reads.attestation("acme", job_id)) == (None, None)


class Recorder(Reads):
    """Records statements instead of running them."""

    def __init__(self) -> None:
        self.statements: list[tuple[str, tuple[Any, ...]]] = []

    def _rows(self, type_: type[Any], sql: str, bindings: tuple[Any, ...]) -> tuple[Any, ...]:
        self.statements.append((sql, bindings))
        return ()

    def _row(self, type_: type[Any], sql: str, bindings: tuple[Any, ...]) -> Any:
        self.statements.append((sql, bindings))


def test_summaries_and_queues_come_from_covering_indexes_without_sorting(
    raw: apsw.Connection,
) -> None:
    recorder = Recorder()
    cursor = Cursor(1, "x")
    for after in (None, cursor):
        for status in (None, "queued"):
            for language in (None, "python"):
                recorder.list_jobs("acme", 50, after, status, language)
    recorder.summary("acme", "x")
    for sql, bindings in recorder.statements:
        plan = [row[3] for row in raw.execute("EXPLAIN QUERY PLAN " + sql, bindings)]
        assert "SEARCH j USING COVERING INDEX" in plan[0], (sql, plan)
        assert not any("TEMP B-TREE" in step or step.startswith("SCAN") for step in plan)


def steps(db: apsw.Connection, call: Any) -> int:
    """Count the database engine's steps, which, unlike time, come out the same every time."""
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    db.set_progress_handler(step, 1)
    try:
        call()
    finally:
        db.set_progress_handler(None)
    return count


def grow_history(raw: apsw.Connection, count: int) -> None:
    """Add ended jobs by plain SQL: their number matters here, not their evidence."""
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute("PRAGMA synchronous = OFF")
    with raw:
        raw.execute(
            """WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
            INSERT INTO jobs (job_id, tenant, language, status, admitted_mem_mb, created_at_ms,
              started_at_ms, finished_at_ms, exit_code, spec_json)
            SELECT printf('0-%08d', i), 'acme', 'python', 'succeeded', 256, i, i, i, 0, '{}' FROM n
            """,
            (count,),
        )


def test_reading_and_accepting_cost_the_same_after_thousands_of_jobs(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    for _ in range(10):
        jobs.accept()
    queued = jobs.accept()
    writer = store._writer._db

    def costs() -> list[int]:
        with store.reader() as view:
            reads: Snapshot = view
            calls = [
                lambda: reads.list_jobs("acme", 10),
                lambda: reads.list_jobs("acme", 10, None, "queued"),
                lambda: reads.list_jobs("acme", 10, None, "queued", "python"),
                lambda: reads.get("acme", queued),
                lambda: reads.queued_page(None, 10),
                lambda: reads.counts("acme"),
                lambda: reads.running_ids(),
                lambda: reads.pending_attestations(10**15),
                lambda: reads.find_key("acme", "k"),
            ]
            counted = [steps(view._db, call) for call in calls]
        return [*counted, steps(writer, jobs.accept)]

    before = costs()
    grow_history(raw, 20_000)
    after = costs()
    # One job more was accepted between the two, which counting notices.
    assert all(new <= old + 20 for old, new in zip(before, after, strict=True)), (before, after)


def test_the_probe_notices_and_repairs_nothing(store: Store, raw: apsw.Connection) -> None:
    assert store.read.probe() is True
    raw.execute("PRAGMA user_version = 3")
    assert store.read.probe() is False
    raw.execute("PRAGMA user_version = 4")
    assert store.read.probe() is True
    raw.execute("DROP TRIGGER schema_migrations_no_delete")
    raw.execute("DELETE FROM schema_migrations WHERE version = 4")
    assert store.read.probe() is False
    raw.execute("INSERT INTO schema_migrations VALUES (4, 1)")
    assert store.read.probe() is True
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute("DROP TABLE events")
    assert store.read.probe() is False


NO_TEXT = "\ud800"


@pytest.mark.parametrize(
    "read",
    [
        lambda reads: reads.get(None, NO_TEXT),
        lambda reads: reads.summary("acme", NO_TEXT),
        lambda reads: reads.replay(None, NO_TEXT),
        lambda reads: reads.list_jobs("acme", status=NO_TEXT),
        lambda reads: reads.list_jobs("acme", cursor=Cursor(2**63, "j")),
        lambda reads: reads.queued_page(Cursor(0, NO_TEXT)),
        lambda reads: reads.events_after("j", 2**63),
        lambda reads: reads.find_key("acme", NO_TEXT),
        lambda reads: reads.attestation("acme", NO_TEXT),
        lambda reads: reads.outbox(NO_TEXT),
        lambda reads: reads.counts(NO_TEXT),
        lambda reads: reads.pending_attestations(2**63),
    ],
    ids=range(12),
)
def test_what_no_row_can_hold_is_an_invalid_operation(
    store: Store, read: Callable[[Any], Any]
) -> None:
    with pytest.raises(InvalidOperationError):
        read(store.read)
    with store.reader() as view, pytest.raises(InvalidOperationError):
        read(view)
