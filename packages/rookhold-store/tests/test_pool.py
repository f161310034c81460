from contextlib import ExitStack

import apsw
import pytest

from rookhold_store import StorageUnavailableError, Store
from rookhold_store.pool import IDLE_MAX
from rookhold_store.testing import Jobs


def test_a_snapshot_does_not_see_what_is_written_meanwhile(store: Store, jobs: Jobs) -> None:
    job_id = jobs.running()
    with store.reader() as view:
        assert view.last_seq(job_id) == 2
        jobs.append(job_id, "later")
        assert view.last_seq(job_id) == 2
        assert store.read.last_seq(job_id) == 3


def test_readers_nest_and_run_side_by_side_without_waiting_for_each_other(
    store: Store, jobs: Jobs
) -> None:
    job_id = jobs.finished()
    with ExitStack() as held:
        views = [held.enter_context(store.reader()) for _ in range(3 * IDLE_MAX)]
        assert [view.last_seq(job_id) for view in views] == [4] * len(views)
        assert store.read.last_seq(job_id) == 4
    assert len(store.read._idle) == IDLE_MAX


def test_a_reader_cannot_write(store: Store) -> None:
    with store.reader() as view, pytest.raises(apsw.ReadOnlyError):
        view._db.execute("UPDATE store_meta SET accounting_revision = 2")
    with pytest.raises(StorageUnavailableError), store.read._use() as db:
        db.execute("UPDATE store_meta SET accounting_revision = 2")


@pytest.mark.parametrize("error", [OverflowError(), UnicodeDecodeError("ascii", b"", 0, 0, "")])
def test_what_a_borrower_of_a_snapshot_raises_is_its_own(store: Store, error: Exception) -> None:
    with pytest.raises(type(error)) as caught, store.reader():
        raise error
    assert caught.value is error


def test_a_reader_given_back_after_the_close_does_not_keep_its_connection(
    store: Store, jobs: Jobs
) -> None:
    jobs.accept()
    with store.reader() as view:
        store.close()
        assert len(view.list_jobs("acme")) == 1
    assert not store.read._idle
    assert store.read.probe() is False


def test_a_reader_whose_view_could_not_be_ended_is_not_lent_again(store: Store) -> None:
    with store.read._lend() as stuck:
        stuck.execute("BEGIN")
    assert stuck not in store.read._idle
    assert store.read.probe()
