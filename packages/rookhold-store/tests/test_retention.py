"""Retention in detail: its steps, its accounts, and what waits meanwhile."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookhold_store import (
    Append,
    FailAttestation,
    InvalidOperationError,
    JobNotFoundError,
    PersistOutcome,
    ProveWritable,
    RecoverRunning,
    Store,
    Sweep,
    Swept,
    WaiveAttestation,
    retention,
)
from rookhold_store.accounting import findings
from rookhold_store.rehearsal import rehearse
from rookhold_store.testing import Jobs, TickingClock, anything_binds, tampering_connection
from rookhold_store.verify import verify
from rookhold_types.ids import new_job_id
from rookhold_types.jobs import JobSpec
from rookhold_types.states import TERMINAL

MIB = 1 << 20


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much a transaction does is then told by its counts alone, on a busy machine too."""
    monkeypatch.setattr(retention, "WORK_SECONDS", 60.0)


def sweep(store: Store, age_ms: int = 0, *, at: int | None = None, max_jobs: int = 64) -> Swept:
    now_ms = store.clock() if at is None else at
    return store.call(Sweep(now_ms=now_ms, age_ms=age_ms, max_jobs=max_jobs))


def drain(store: Store) -> Iterator[Swept]:
    """Sweep until nothing is left, as a sweeper would."""
    while True:
        swept = sweep(store)
        yield swept
        if not swept.more_remaining:
            return
        assert swept.jobs_deleted or swept.events_deleted, "or it would never end"


def long(jobs: Jobs, events: int, **values: Any) -> str:
    job_id = jobs.running(**values)
    while (left := events - 1 - jobs.store.read.last_seq(job_id)) > 0:
        jobs.append(job_id, *["line"] * min(left, 256))
    jobs.finalise(job_id)
    return job_id


def heavy(jobs: Jobs, mib: int) -> str:
    job_id = jobs.running()
    for _ in range(mib):
        data = {"path": "output/a", "content_base64": "A" * MIB}
        now_ms = jobs.store.clock()
        jobs.store.call(Append(job_id=job_id, events=[("artifact", data)], now_ms=now_ms))
    jobs.finalise(job_id)
    return job_id


@pytest.mark.parametrize(
    ("age_ms", "max_jobs"), [(-1, 64), (0, 0), (0, 65)], ids=["age", "no jobs", "too many"]
)
def test_values_outside_their_range_are_argument_errors(
    store: Store, jobs: Jobs, age_ms: int, max_jobs: int
) -> None:
    jobs.finished()
    with pytest.raises(InvalidOperationError):
        sweep(store, age_ms, max_jobs=max_jobs)
    assert len(store.read.list_jobs(None)) == 1


def test_a_job_exactly_as_old_as_the_age_stays(store: Store, jobs: Jobs) -> None:
    job_id = jobs.finished()
    row = store.read.get(None, job_id)
    assert row is not None
    assert row.finished_at_ms is not None
    assert sweep(store, 1000, at=row.finished_at_ms + 1000) == Swept(
        jobs_deleted=0, events_deleted=0, more_remaining=False
    )
    assert sweep(store, 1000, at=row.finished_at_ms + 1001).hidden == (job_id,)


def test_an_age_beyond_the_beginning_of_time_takes_nothing(store: Store, jobs: Jobs) -> None:
    jobs.finished()
    assert sweep(store, 2**53).jobs_deleted == 0


def test_the_oldest_end_goes_first_whenever_the_job_was_accepted(store: Store, jobs: Jobs) -> None:
    first, second = jobs.running(), jobs.running()
    jobs.finalise(second)
    jobs.finalise(first)
    assert sweep(store, max_jobs=1).hidden == (second,)
    assert sweep(store, max_jobs=1).hidden == (first,)


def test_sixty_four_jobs_are_one_transaction(store: Store, jobs: Jobs) -> None:
    ids = [jobs.finished() for _ in range(70)]
    swept = sweep(store)
    assert (swept.jobs_deleted, swept.events_deleted) == (64, 256)
    assert (swept.hidden, swept.more_remaining) == (tuple(ids[:64]), True)
    assert sweep(store).hidden == tuple(ids[64:])


def test_four_thousand_and_ninety_six_events_are_one_transaction(store: Store, jobs: Jobs) -> None:
    ids = [long(jobs, 3000), long(jobs, 1096), jobs.finished(), long(jobs, 4096)]
    swept = [
        (each.jobs_deleted, each.events_deleted, each.more_remaining, each.hidden)
        for each in drain(store)
    ]
    assert swept == [
        (2, 4096, True, tuple(ids[:2])),
        (1, 4, True, (ids[2],)),
        (1, 4096, False, (ids[3],)),
    ]


def test_a_longer_history_is_only_begun_by_a_transaction_of_its_own(
    store: Store, jobs: Jobs
) -> None:
    small, big, last = jobs.finished(), long(jobs, 4097 + 4096), jobs.finished()
    swept = [(each.jobs_deleted, each.events_deleted, each.hidden) for each in drain(store)]
    assert swept == [(1, 4, (small,)), (0, 4096, (big,)), (0, 4096, ()), (2, 5, (last,))]


def test_megabytes_are_spread_over_transactions(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    heavy(jobs, 5)
    heavy(jobs, 1)
    passes = []
    before = store.read.charged_bytes()
    for swept in drain(store):
        passes.append((swept.jobs_deleted, swept.events_deleted))
        after = store.read.charged_bytes()
        freed, before = before - after, after
        reserves = 20 * MIB * swept.jobs_deleted
        assert freed - reserves <= retention.BYTES_MAX + MIB
        assert findings(raw) == []
    assert sum(jobs for jobs, _ in passes) == 2
    assert sum(events for _, events in passes) == 5 + 1 + 6
    assert len(passes) > 3


def test_a_transaction_that_took_its_time_begins_no_other_job(
    store: Store, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "WORK_SECONDS", 0.0)
    monkeypatch.setattr(retention, "GRACE_SECONDS", 0.0)
    ids = [jobs.finished() for _ in range(2)] + [long(jobs, 30)]
    swept = list(drain(store))
    assert [each.jobs_deleted for each in swept] == [1, 1, 0, 1]
    assert [each.hidden for each in swept[:3]] == [(job_id,) for job_id in ids]
    assert sum(each.events_deleted for each in swept) == 4 + 4 + 30
    assert store.read.list_jobs(None) == ()


@pytest.mark.parametrize(("size", "least"), [(1, 16), (20_000, 7)])
def test_however_late_it_is_a_transaction_takes_some_of_a_long_history(
    store: Store, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, size: int, least: int
) -> None:
    job_id = jobs.running()
    line = {"line": "x" * size, "eol": True}
    for _ in range(4):
        store.call(Append(job_id=job_id, events=[("stdout", line)] * 25, now_ms=store.clock()))
    jobs.finalise(job_id)
    for name in ("WORK_SECONDS", "LEAST_SECONDS", "GRACE_SECONDS"):
        monkeypatch.setattr(retention, name, 0.0)
    taken = [swept.events_deleted for swept in drain(store)]
    assert min(taken[:-1]) >= least
    assert sum(taken) == 103


def test_a_commit_that_took_long_leaves_less_time_for_the_work_of_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.undo()
    now = [0.0]
    monkeypatch.setattr(retention, "monotonic", lambda: now[0])
    pace = retention.Pace()
    found = [pace.work_seconds()]
    for commit in (0.005, 0.02, 1.0, *[0.001] * 25):
        pace.worked()
        now[0] += commit
        pace.committed(1)
        now[0] += 5.0
        pace.committed(3)  # of other operations
        found.append(pace.work_seconds())
    assert found[:4] == pytest.approx([0.02, 0.02, 0.01, 0.004])
    assert found[-1] == 0.02


def test_a_large_spec_keeps_its_receipt_until_its_row_goes(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    """To take it out would write the spec anew, which takes longer than all the rest."""
    spec = JobSpec(language="python", code="#" * 1_048_576, stdin="x" * MIB)
    big, small = long(jobs, 5000, spec=spec, key="k"), long(jobs, 5000)
    sweep(store)
    kept = "SELECT receipt_json IS NOT NULL FROM jobs WHERE job_id = ?"
    assert raw.execute(kept, (big,)).get == 1
    assert store.read.find_key("acme", "k") is None
    assert store.read.get(None, big) is None
    assert findings(raw) == []
    sweep(store)  # the rest of it, and then there is no room for the other one
    assert raw.execute(kept, (big,)).get is None
    sweep(store)
    assert raw.execute(kept, (small,)).get == 0
    assert findings(raw) == []


def test_what_was_begun_is_finished_although_it_is_young_again(store: Store, jobs: Jobs) -> None:
    """As after a longer retention was set, or the clock was set back."""
    big = long(jobs, 4100)
    assert sweep(store).hidden == (big,)
    swept = sweep(store, 1_000_000)
    assert (swept.jobs_deleted, swept.events_deleted, swept.more_remaining) == (1, 4, False)


def test_a_job_that_waits_for_its_signature_goes_like_any_other(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    pending, failed, signed = jobs.finished(), jobs.finished(), jobs.finished()
    store.call(FailAttestation(job_id=failed, code="c", now_ms=store.clock(), profile="1"))
    attestation = jobs.attestation(signed)
    assert store.call(attestation) is PersistOutcome.CREATED
    late = jobs.attestation(pending)
    assert sweep(store).jobs_deleted == 3
    assert store.call(late) is PersistOutcome.STALE_RECEIPT
    assert not store.call(WaiveAttestation(job_id=pending))
    assert store.read.charged_bytes() == 0
    assert store.read.attestation(None, signed) is None
    assert findings(raw) == []
    for table in ("jobs", "events", "attestation_outbox", "job_attestations", "job_storage_usage"):
        assert raw.execute(f"SELECT count(*) FROM {table}").get == 0


def test_a_hidden_job_takes_part_in_nothing(store: Store, jobs: Jobs) -> None:
    big = long(jobs, 5000)
    sweep(store)
    now_ms = store.clock()
    assert store.call(RecoverRunning(job_id=big, now_ms=now_ms)) is None
    assert jobs.finalise(big) is None
    with pytest.raises(JobNotFoundError):
        jobs.append(big, "late")
    assert store.read.pending_attestations(now_ms) == ()
    assert store.read.counts("acme").running == 0


def test_what_hangs_on_a_job_is_found_by_the_job_and_not_by_its_tenant(
    raw: apsw.Connection, store: Store
) -> None:
    """The cascade has no plan that one can ask for; it searches each child with these columns.

    A search by tenant would visit every key of that tenant, for each job that is removed.
    """
    found = 0
    for (table,) in raw.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
        keys: list[Any] = raw.execute(f"PRAGMA foreign_key_list({table})").fetchall()
        columns = [column for _, _, parent, column, *_ in keys if parent == "jobs"]
        if columns:
            found += 1
            terms = " AND ".join(f"{column} = ?{n}" for n, column in enumerate(columns, 1))
            plan = raw.execute(f"EXPLAIN QUERY PLAN DELETE FROM {table} WHERE {terms}", columns)
            (line,) = [row[-1] for row in plan]
            assert "(job_id=?" in line, line
    assert found == 7


class Gate:
    """Work that holds the writer until the test lets it go on."""

    size = 0

    def __init__(self, store: Store) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        store._writer.submit(self)
        assert self.entered.wait(30)

    def run(self, db: apsw.Connection) -> None:
        self.entered.set()
        assert self.open.wait(30)


def test_what_waits_has_its_turn_between_two_sweeps(store: Store, jobs: Jobs) -> None:
    for _ in range(200):
        jobs.finished()
    order: list[str] = []

    def note(name: str) -> Callable[[object], None]:
        return lambda future: order.append(name)

    gate = Gate(store)
    for number in range(3):
        swept = store.submit(Sweep(now_ms=store.clock(), age_ms=0))
        swept.add_done_callback(note("sweep"))
        accepted = store.submit(jobs.acceptance())
        accepted.add_done_callback(note("accept"))
        if number == 0:

            def more(_: object) -> None:
                store.submit(ProveWritable()).add_done_callback(note("late"))

            swept.add_done_callback(more)
    gate.open.set()
    accepted.result(30)
    swept.result(30)
    store.call(ProveWritable())
    assert order == ["accept", "accept", "accept", "sweep", "late", "sweep", "sweep"]


def test_a_rehearsal_finds_its_indexes_and_changes_nothing(
    store: Store, jobs: Jobs, raw: apsw.Connection
) -> None:
    ids = [jobs.finished(), jobs.finished(key="k"), "unknown"]
    before = raw.execute("PRAGMA data_version").get
    with store.read.connection() as db:
        rehearse(db, ids, 4096)
    assert raw.execute("PRAGMA data_version").get == before


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["job", "sweep", "sign", "waive", "reopen"]),
        st.integers(1, 40),
        st.booleans(),
    ),
    max_size=25,
)


@given(ACTS)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_the_accounts_are_exact_after_every_step(
    path: Path, monkeypatch: pytest.MonkeyPatch, acts: list[tuple[str, int, bool]]
) -> None:
    monkeypatch.setattr(retention, "EVENTS_MAX", 16)
    clock = TickingClock()
    path = path.with_name(f"{new_job_id()}.db")
    store = Store.open(path, binding=anything_binds, clock=clock)
    raw = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    visible: list[str] = []
    try:
        for act, number, flag in acts:
            jobs = Jobs(store)
            if act == "job":
                key = f"{clock.now_ms}" if flag else None
                visible.append(long(jobs, 3 + number, tenant=f"t{number % 3}", key=key))
            elif act == "sweep":
                swept = sweep(store, max_jobs=1 + number % 3)
                assert swept.jobs_deleted <= 1 + number % 3
                assert swept.events_deleted <= 16
                assert set(swept.hidden) <= set(visible)
                visible = [job_id for job_id in visible if job_id not in swept.hidden]
            elif act == "reopen":
                store.close()
                store = Store.open(path, binding=anything_binds, clock=clock)
            elif visible:
                job_id = visible[number % len(visible)]
                if act == "waive":
                    store.call(WaiveAttestation(job_id=job_id))
                elif store.read.outbox(job_id) is not None:
                    store.call(jobs.attestation(job_id))
            assert findings(raw) == []
            assert [row.job_id for row in store.read.list_jobs(None, 500)] == visible[::-1]
    finally:
        raw.close()
        store.close()


# Says of each job that it ended, and of each that nobody sees any more.
SCRIPT = """
import sys, threading
from rookhold_store import Store, Sweep, retention
retention.EVENTS_MAX = 64  # many histories are longer
from rookhold_store.testing import Jobs, anything_binds
store = Store.open(sys.argv[1], binding=anything_binds)
jobs = Jobs(store)
lock = threading.Lock()
def say(*words):
    with lock:
        print(*words, flush=True)
def client(number):
    turn = 0
    while True:
        turn += 1
        job_id = jobs.running(tenant=f"t{number}", key=f"{number}-{turn}")
        for _ in range(turn % 4):
            jobs.append(job_id, *["line"] * 80)
        jobs.finalise(job_id)
        say("ended", job_id)
def sweeper():
    while True:
        for job_id in store.call(Sweep(now_ms=store.clock(), age_ms=50)).hidden:
            say("hidden", job_id)
for number in range(2):
    threading.Thread(target=client, args=(number,), daemon=True).start()
threading.Thread(target=sweeper, daemon=True).start()
threading.Event().wait()
"""


@pytest.mark.parametrize("answers", [40, 90])
def test_a_kill_during_sweeps_leaves_whole_jobs_hidden_ones_and_exact_accounts(
    path: Path, answers: int
) -> None:
    said: dict[str, set[str]] = {"ended": set(), "hidden": set()}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for _ in range(answers):
            word, job_id = child.stdout.readline().split()
            said[word].add(job_id)
        child.kill()
        for line in child.stdout.read().splitlines(keepends=True):
            if line.endswith("\n"):
                word, job_id = line.split()
                said[word].add(job_id)
    assert said["hidden"]
    with Store.open(path, binding=anything_binds) as store:
        raw = tampering_connection(path)
        assert findings(raw) == []
        assert raw.execute("PRAGMA integrity_check").get == "ok"
        assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
        seen = {row.job_id for row in store.read.list_jobs(None, 500) if row.status in TERMINAL}
        assert not seen & said["hidden"], "what was hidden stays hidden"
        for job_id in seen:
            events = store.read.events_after(job_id, 0, 5000)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert events[-1].kind == "finished"
        for job_id in store.read.running_ids(100):
            store.call(RecoverRunning(job_id=job_id, now_ms=store.clock()))
        assert list(verify(path, binding=anything_binds)) == []
        for _ in drain(store):
            pass
        queued = len(store.read.list_jobs(None, 500))
        assert raw.execute("SELECT count(*) FROM jobs").get == queued
        assert findings(raw) == []
        raw.close()
