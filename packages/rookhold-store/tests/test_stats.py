"""The counts are those of the rows, and reading them reads no payload."""

from contextlib import closing

import apsw
import pytest

from rookhold_store import Store, StoreError
from rookhold_store.stats import stats
from rookhold_store.testing import Jobs
from rookhold_store.testing.lineage import make_old
from rookhold_store.testing.population import populate
from rookhold_store.testing.specimen import Made


def test_every_place_of_a_life_is_counted(made: Made) -> None:
    found = stats(made.path)
    assert found.jobs == 8
    assert {name: count for name, count in found.by_status.items() if count} == {
        "queued": 1,
        "running": 1,
        "succeeded": 5,
        "timed_out": 1,
    }
    assert (found.attested, found.pending, found.waived) == (1, 4, 1)
    assert (found.quarantined, found.hidden, found.keys) == (1, 1, 2)
    assert found.tenants == 3
    assert found.charged_bytes == found.retained_bytes + found.reserved_bytes
    assert sum(item.charged_bytes for item in found.most_charged) == found.charged_bytes
    assert found.file_bytes == made.path.stat().st_size
    assert found.oldest_created_at_ms is not None
    assert found.newest_created_at_ms is not None
    assert found.oldest_created_at_ms < found.newest_created_at_ms
    assert found.skipped


def test_a_new_file_has_nothing_and_says_so(store: Store) -> None:
    found = stats(store.path)
    assert (found.jobs, found.charged_bytes, found.oldest_created_at_ms) == (0, 0, None)


def test_it_counts_beside_a_writer(store: Store) -> None:
    populate(store, 20)
    before = stats(store.path)
    Jobs(store).finished()
    assert stats(store.path).jobs == before.jobs + 1
    assert before.log_bytes


def test_no_payload_is_read(made: Made) -> None:
    """Payloads of ten megabytes would show in the number of pages that are read."""
    with closing(apsw.Connection(str(made.path))) as db:
        db.execute("DROP TRIGGER jobs_identity; DROP TRIGGER events_no_update")
        db.execute(
            "UPDATE jobs SET spec_json = json_object('code', printf('%.*c', 10000000, 'x'))"
            " WHERE job_id = ?",
            (made.pending,),
        )
    read = _read_bytes()
    stats(made.path)
    assert _read_bytes() - read < 2_000_000


def _read_bytes() -> int:
    with open("/proc/self/io", encoding="ascii") as file:  # noqa: PTH123
        return int(next(line for line in file if line.startswith("rchar")).split()[1])


def test_an_older_version_is_refused(made: Made) -> None:
    older = made.path.with_name("old.db")
    make_old(older, 3).close()
    with pytest.raises(StoreError) as refused:
        stats(older)
    assert refused.value.code == "schema_version"
