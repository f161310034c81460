"""Between operations: the log stays short, a reader that holds it is seen, free pages go back."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from rookhold_store import Append, Store, Sweep, upkeep
from rookhold_store.connection import WAL_BYTES_KEPT
from rookhold_store.testing import Jobs, TickingClock, anything_binds

MIB = 1 << 20
PAGE = 4096


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def write(store: Store, job_id: str, mib: int) -> int:
    """Write that much, a quarter of a MiB a commit; return the longest log on the way."""
    longest = 0
    for _ in range(4 * mib):
        line = {"line": "x" * (MIB // 4), "eol": True}
        store.call(Append(job_id=job_id, events=[("stdout", line)], now_ms=store.clock()))
        longest = max(longest, store.log_state().bytes)
    return longest


def held(store: Store) -> bool:
    return store.log_state().held_seconds is not None


def pages(store: Store) -> tuple[int, int]:
    with apsw.Connection(str(store.path), flags=apsw.SQLITE_OPEN_READONLY) as db:
        return db.pragma("freelist_count"), db.pragma("page_count")


def test_a_burst_leaves_a_short_log(store: Store, jobs: Jobs) -> None:
    assert write(store, jobs.running(), 40) <= 32 * MIB
    until(lambda: store.log_state().bytes <= WAL_BYTES_KEPT)
    assert not held(store)


def test_a_reader_that_holds_on_is_seen_and_stops_no_write(
    store: Store, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="rookhold_store")
    job_id = jobs.running()
    reader = apsw.Connection(str(store.path), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN; SELECT count(*) FROM jobs").fetchall()
    longest = write(store, job_id, 24)
    assert longest > 20 * MIB, "nothing of it can be emptied"
    until(lambda: "holds on to an old view" in caplog.text)
    until(lambda: held(store))
    assert caplog.text.count("holds on to an old view") < 5
    state = store.log_state()
    assert state.pages * PAGE > 20 * MIB
    assert state.moved < state.pages

    reader.execute("COMMIT").fetchall()
    until(lambda: not held(store))
    until(lambda: store.log_state().bytes <= WAL_BYTES_KEPT)
    assert "let it go" in caplog.text
    reader.close()
    assert store.read.last_seq(job_id) == 2 + 96


def test_a_reader_that_comes_and_goes_does_not_make_the_log_grow(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    longest = 0
    for _ in range(10):
        with store.reader() as view:
            view.last_seq(job_id)
            longest = max(longest, write(store, job_id, 4))
        longest = max(longest, write(store, job_id, 1))
    assert longest <= 32 * MIB


def test_many_free_pages_go_back_and_operations_come_between(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    write(store, job_id, 24)
    kept = jobs.finished()
    jobs.finalise(job_id)
    size = pages(store)[1]
    while store.call(Sweep(now_ms=store.clock(), age_ms=1_000_000, max_jobs=1)).more_remaining:
        raise AssertionError("nothing is that old")
    until(lambda: not store.call(Sweep(now_ms=store.clock(), age_ms=0)).more_remaining)
    assert store.read.get(None, kept) is None
    done = [jobs.finished()]

    def small() -> bool:
        done.append(jobs.finished())
        time.sleep(0.05)
        return pages(store)[1] < size // 3

    until(small)
    until(lambda: pages(store)[0] <= upkeep.FREE_MIN)
    assert len(store.read.list_jobs("acme", 500)) == min(len(done), 500)
    with apsw.Connection(str(store.path), flags=apsw.SQLITE_OPEN_READONLY) as db:
        assert db.execute("PRAGMA integrity_check").get == "ok"


def test_a_few_free_pages_stay_for_the_next_jobs(
    store: Store, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "LOOK_SECONDS", 0.001)
    for _ in range(20):
        jobs.finished()
    while store.call(Sweep(now_ms=store.clock(), age_ms=0)).more_remaining:
        pass
    until(lambda: store._upkeep._look_at is None)
    assert pages(store)[0] > 0


def test_upkeep_that_fails_is_logged_and_stops_nothing(
    store: Store,
    jobs: Jobs,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(upkeep, "FREE_MIN", 0)
    monkeypatch.setattr(upkeep, "FREE_PARTS", 1 << 30)
    monkeypatch.setattr(upkeep, "LOOK_SECONDS", 0.001)

    def full(until: float) -> None:
        store._writer._db.execute("BEGIN IMMEDIATE")
        raise apsw.FullError

    monkeypatch.setattr(store._upkeep, "_give_back", full)
    first = jobs.accept()
    until(lambda: "upkeep of the database waits" in caplog.text)
    second = jobs.accept()
    assert {row.job_id for row in store.read.list_jobs("acme")} == {first, second}
    assert caplog.text.count("upkeep of the database waits") == 1, "it waits for a while"


@pytest.mark.parametrize("mib", [1, 12])
def test_a_store_that_is_closed_at_once_leaves_no_log(path: Path, mib: int) -> None:
    for turn in range(3):
        with Store.open(path, binding=anything_binds, clock=TickingClock()) as store:
            write(store, Jobs(store).running(tenant=f"t{turn}"), mib)
        assert not path.with_name(path.name + "-wal").exists()
    with Store.open(path) as store:
        assert len(store.read.running_ids(10)) == 3


def test_readers_that_never_all_go_at_once_do_not_make_the_log_grow(
    store: Store, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "LONG_PAGES", 1500)
    job_id, over = jobs.running(), threading.Event()

    def read() -> None:
        while not over.is_set():
            with store.reader() as view:
                view.last_seq(job_id)
                over.wait(0.01)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    try:
        longest = write(store, job_id, 64)
    finally:
        over.set()
        for reader in readers:
            reader.join(60)
    assert longest <= 32 * MIB


def test_a_thread_that_cannot_be_started_does_not_end_the_writer(
    store: Store, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = jobs.running()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        line = {"line": "x" * (MIB // 4), "eol": True}
        for _ in range(32):
            op = Append(job_id=job_id, events=[("stdout", line)], now_ms=store.clock())
            store.submit(op).result(timeout=60)
    write(store, job_id, 8)
    until(lambda: store.log_state().bytes <= WAL_BYTES_KEPT)
