"""Files of older stores, upgraded and then used: sound, and judged by what they can say."""

from pathlib import Path

import pytest

from rookhold_store import Store, StoreError
from rookhold_store.testing import Jobs, TickingClock
from rookhold_store.testing.lineage import copy_down, make_old
from rookhold_store.testing.specimen import Made, binding, unguarded
from rookhold_store.verify import verify


@pytest.fixture(params=[1, 2, 3, 4])
def old(request: pytest.FixtureRequest, original: Made, path: Path) -> Path:
    db = make_old(path, request.param)
    copy_down(db, request.param, original.path)
    db.close()
    if request.param < 3:  # no job was ever hidden by a store of that version
        with unguarded(path) as db:
            for table in ("events", "jobs"):
                db.execute(f"DELETE FROM {table} WHERE job_id = ?", (original.hidden,))
    return path


def test_an_upgraded_file_verifies_before_and_after_it_is_used(old: Path) -> None:
    with Store.open(old, binding=binding, clock=TickingClock(10**9)) as store:
        assert list(map(str, verify(old, binding=binding))) == []
        jobs = Jobs(store)
        jobs.finished(key="new")
        for row in store.read.running_ids(100):
            jobs.finalise(row)
        assert list(map(str, verify(old, binding=binding))) == []


@pytest.mark.parametrize("version", [1, 2, 3])
def test_an_older_file_is_told_to_be_upgraded_first(path: Path, version: int) -> None:
    make_old(path, version).close()
    with pytest.raises(StoreError) as refused:
        list(verify(path))
    assert refused.value.code == "schema_version"
    assert refused.value.detail["version"] == version


def test_events_that_lost_their_hashes_are_found_where_all_have_hashes(made: Made) -> None:
    with unguarded(made.path) as db:
        db.execute(
            "UPDATE events SET hash_version = 0, prev_hash = '', event_hash = '' WHERE job_id = ?",
            (made.pending,),
        )
    found = [item for item in verify(made.path, binding=binding) if item.job_id == made.pending]
    assert "jobs.job_id" in {item.place for item in found}
