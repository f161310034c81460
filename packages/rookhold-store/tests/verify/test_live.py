"""A verification beside a writer: no false alarm, no lock, and a log that can be emptied."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic

import pytest

from rookhold_store import FailAttestation, Store, Sweep, WaiveAttestation
from rookhold_store.source import Source
from rookhold_store.testing import Jobs, TickingClock, anything_binds
from rookhold_store.testing.specimen import Made, binding, unguarded
from rookhold_store.verify import Verification, verify

SECONDS = 0.8


@contextmanager
def busy(store: Store, lines: int = 40) -> Iterator[None]:
    """Write and sweep whole lives until the block is left."""
    done = threading.Event()
    failures: list[BaseException] = []

    def live() -> None:
        jobs = Jobs(store)
        turn = 0
        try:
            while not done.is_set():
                turn += 1
                job_id = jobs.running(tenant=f"t{turn % 3}", key=f"k{turn}")
                for line in range(lines // 10):
                    jobs.append(job_id, *(f"{line}.{n}" for n in range(10)))
                jobs.finalise(job_id)
                if turn % 4 == 0:
                    store.call(jobs.attestation(job_id))
                elif turn % 4 == 1:
                    store.call(WaiveAttestation(job_id=job_id))
                elif turn % 4 == 2:
                    store.call(
                        FailAttestation(
                            job_id=job_id, code="gone", now_ms=store.clock(), profile="1"
                        )
                    )
                if turn % 10 == 0:
                    store.call(Sweep(now_ms=store.clock(), age_ms=200))
        except BaseException as exc:  # noqa: BLE001  # told in the thread of the test
            failures.append(exc)

    thread = threading.Thread(target=live)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not failures


@pytest.mark.parametrize("slice_seconds", [0.0, 0.2])
def test_no_false_alarm_while_jobs_are_written_and_swept(
    store: Store, slice_seconds: float
) -> None:
    passes = checked = 0
    with busy(store), closing(Source(store.path, slice_seconds=slice_seconds)) as source:
        until = monotonic() + SECONDS
        while monotonic() < until or not passes:
            run = Verification(source, binding=anything_binds)
            assert list(run.findings()) == []
            passes += 1
            checked += run.jobs
    assert checked


@pytest.mark.parametrize("left", [2000, 0], ids=["a part of it", "all of it"])
def test_no_false_alarm_over_a_long_history_that_is_removed_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    jobs = Jobs(store)
    job_id = jobs.running()
    for batch in range(30):
        jobs.append(job_id, *(f"{batch}.{line}" for line in range(250)))
    jobs.finalise(job_id)
    looks = 0

    def sweep(view: object) -> bool:
        nonlocal looks
        looks += 1
        while looks == 6000 and store.read.last_seq(job_id) > left:
            store.call(Sweep(now_ms=store.clock() + 10**9, age_ms=0))
        return True

    monkeypatch.setattr("rookhold_store.moments.Short.due", sweep)
    with closing(Source(store.path, slice_seconds=0.0)) as source:
        assert list(Verification(source, binding=anything_binds).findings()) == []
    assert looks > 6000
    assert store.read.last_seq(job_id) <= left


def test_a_verification_holds_no_moment_for_long(store: Store) -> None:
    jobs = Jobs(store)
    for _ in range(5):
        job_id = jobs.running()
        for batch in range(10):
            jobs.append(job_id, *(f"{batch}.{line}" for line in range(250)))
        jobs.finalise(job_id)
    moments = 0

    def trace(*said: object) -> bool:
        nonlocal moments
        moments += said[1] == "BEGIN"
        return True

    with closing(Source(store.path, slice_seconds=0.002)) as source:
        source.db.exec_trace = trace
        assert list(Verification(source, binding=anything_binds).findings()) == []
    assert moments > 20


def test_it_takes_no_instance_lock_and_leaves_nothing_behind(store: Store) -> None:
    Jobs(store).finished()
    path = store.path
    store.close()
    before = {item.name: item.stat().st_mtime_ns for item in path.parent.iterdir()}
    content = path.read_bytes()
    with closing(Source(path)) as source:
        assert list(Verification(source).findings()) == []
        assert {item.name: item.stat().st_mtime_ns for item in path.parent.iterdir()} == before
    assert path.read_bytes() == content


def test_a_file_that_is_opened_meanwhile_is_read_through_its_log(path: Path) -> None:
    with Store.open(path, binding=anything_binds, clock=TickingClock()) as store:
        for _ in range(20):
            Jobs(store).finished()
    source = Source(path, slice_seconds=0.0)
    with closing(source):
        run = Verification(source, binding=anything_binds)
        found = run.findings()
        opened: list[Store] = []
        pages = 0

        def meanwhile(*_: object) -> None:
            nonlocal pages
            pages += 1
            if pages == 3:
                opened.append(Store.open(path, binding=anything_binds, clock=TickingClock(10**7)))
            for store in opened:
                jobs = Jobs(store)
                jobs.finished()
                store.call(Sweep(now_ms=10**9, age_ms=0, max_jobs=2))

        run = Verification(source, binding=anything_binds, progress=meanwhile)
        found = run.findings()
        assert list(found) == []
        assert opened
        for store in opened:
            store.close()


def test_a_hidden_job_of_which_no_event_is_left_is_sound(made: Made) -> None:
    with unguarded(made.path) as db:
        statement = (
            "SELECT sum(64 + octet_length(kind) + octet_length(data_json)"
            " + octet_length(prev_hash) + octet_length(event_hash)) FROM events WHERE job_id = ?"
        )
        lost = db.execute(statement, (made.hidden,)).get
        db.execute("DELETE FROM events WHERE job_id = ?", (made.hidden,))
        db.execute(
            "UPDATE job_storage_usage SET retained_bytes = retained_bytes - ? WHERE job_id = ?",
            (lost, made.hidden),
        )
        db.execute("UPDATE storage_usage_total SET charged_bytes = charged_bytes - ?", (lost,))
        db.execute(
            "UPDATE tenant_storage_usage SET charged_bytes = charged_bytes - ?"
            " WHERE tenant = 'other'",
            (lost,),
        )
    assert list(map(str, verify(made.path, binding=binding))) == []
