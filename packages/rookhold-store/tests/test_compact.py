"""A compaction makes the file as small as its content, and is refused while others use it."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from rookhold_store import Store, StoreError, Sweep
from rookhold_store.compact import compact
from rookhold_store.stats import stats
from rookhold_store.testing import Jobs, TickingClock, anything_binds
from rookhold_store.testing.lineage import make_old
from rookhold_store.verify import verify


@pytest.fixture
def swept(path: Path) -> Path:
    """A file of which little is left."""
    with Store.open(path, binding=anything_binds, clock=TickingClock()) as store:
        jobs = Jobs(store)
        for _ in range(40):
            job_id = jobs.running()
            jobs.append(job_id, *("x" * 1000 for _ in range(20)))
            jobs.finalise(job_id)
        while store.call(Sweep(now_ms=10**9, age_ms=0)).more_remaining:
            pass
        jobs.finished()
    return path


def test_free_pages_go_and_all_else_stays(swept: Path) -> None:
    before = swept.stat().st_size
    said: list[str] = []
    done = compact(swept, tell=said.append)
    assert (done.bytes_before, done.bytes_after) == (before, swept.stat().st_size)
    assert done.bytes_after < before / 2
    assert said
    assert list(verify(swept)) == []
    found = stats(swept)
    assert (found.jobs, found.free_bytes, found.gives_back) == (1, 0, True)
    assert [item.name for item in swept.parent.iterdir()] == [swept.name]
    with Store.open(swept, binding=anything_binds) as store:
        Jobs(store).finished()


def test_a_file_of_an_older_store_gives_its_free_pages_back_from_then_on(path: Path) -> None:
    make_old(path, 1, auto_vacuum="NONE").close()
    Store.open(path).close()
    assert not stats(path).gives_back
    compact(path)
    assert stats(path).gives_back


def test_a_reader_that_holds_on_makes_it_an_error(
    swept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookhold_store.connection.BUSY_TIMEOUT_MS", 50)
    with Store.open(swept) as store, closing(apsw.Connection(str(swept))) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM jobs").fetchall()
        Jobs(store).finished()
        with pytest.raises(StoreError) as refused:
            compact(swept)
        assert refused.value.code == "storage_unavailable"
    assert list(verify(swept)) == []


def test_what_is_not_there_is_not_made(path: Path) -> None:
    with pytest.raises(StoreError):
        compact(path)
    assert not path.exists()


def test_a_file_that_is_not_sound_is_not_touched(swept: Path) -> None:
    with closing(apsw.Connection(str(swept))) as db:
        db.execute("CREATE TABLE strange (a)")
    before = swept.read_bytes()
    with pytest.raises(StoreError) as refused:
        compact(swept)
    assert refused.value.code == "schema_mismatch"
    assert swept.read_bytes() == before
