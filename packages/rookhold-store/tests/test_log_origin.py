"""A log that another file was written with is not laid over this one."""

import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from rookhold_store import OpenRefusedError, Store, UnsafeDatabasePathError, log_origin
from rookhold_store.backup import backup
from rookhold_store.compact import compact
from rookhold_store.testing import Jobs, anything_binds


def opened(path: Path) -> Store:
    return Store.open(path, binding=anything_binds)


def live(path: Path, jobs: int) -> None:
    with opened(path) as store:
        for _ in range(jobs):
            Jobs(store).finished()


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def killed(path: Path, place: Path, jobs: int = 1) -> Path:
    """Return a copy as a process would leave it that is killed after so many more jobs."""
    copy = place / "killed" / path.name
    copy.parent.mkdir(mode=0o700)
    with opened(path) as store:
        for _ in range(jobs):
            Jobs(store).finished()
        shutil.copyfile(path, copy)
        shutil.copyfile(log_of(path), log_of(copy))
    return copy


def number_of(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[68:72], "big")


def check_refused(path: Path) -> None:
    """The open is refused for the log, and has changed nothing."""
    before = [file.read_bytes() for file in (path, log_of(path))]
    with pytest.raises(UnsafeDatabasePathError) as caught:
        opened(path)
    assert caught.value.detail["file"] == log_of(path).name
    assert [file.read_bytes() for file in (path, log_of(path))] == before


def test_the_log_of_another_store_is_refused_and_nothing_changes(path: Path) -> None:
    live(path, 3)
    other = path.with_name("other.db")
    live(other, 3)
    shutil.copyfile(log_of(killed(other, path.parent)), log_of(path))
    check_refused(path)
    with pytest.raises(UnsafeDatabasePathError):
        compact(path)
    log_of(path).unlink()
    with opened(path) as store:
        assert len(store.read.list_jobs("acme", 50)) == 3


@pytest.mark.parametrize("more", [0, 1, 40])
def test_a_log_that_outlived_the_file_which_a_backup_replaced_is_refused(
    path: Path, more: int
) -> None:
    live(path, 5)
    kept = path.with_name("kept.db")
    backup(path, kept, binding=anything_binds)
    live(path, more)
    left = killed(path, path.parent, 5)
    shutil.copyfile(kept, left)
    check_refused(left)


def test_a_log_that_outlived_the_file_which_a_mere_copy_replaced_is_refused(path: Path) -> None:
    """A copy has the number of its original: what differs is the length."""
    live(path, 5)
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    live(path, 40)
    left = killed(path, path.parent)
    shutil.copyfile(copy, left)
    check_refused(left)


@pytest.mark.parametrize("jobs", [1, 7, 60])
def test_what_a_killed_process_left_is_opened_however_long(path: Path, jobs: int) -> None:
    live(path, 2)
    left = killed(path, path.parent, jobs)
    with opened(left) as store:
        assert len(store.read.list_jobs("acme", 100)) == jobs + 2


@pytest.mark.parametrize("part", [0.3, 0.6, 1.0])
def test_a_log_that_has_run_into_the_file_in_part_is_opened(path: Path, part: float) -> None:
    """As a kill amid a checkpoint leaves it: some pages are in the file already."""
    live(path, 2)
    left = killed(path, path.parent, 7)
    log, size = log_of(left).read_bytes(), 4096
    frames = range(32, len(log) - size + 1, 24 + size)
    with left.open("r+b") as file:
        for offset in frames[: int(len(frames) * part)]:
            page = int.from_bytes(log[offset : offset + 4], "big")
            file.seek((page - 1) * size)
            file.write(log[offset + 24 : offset + 24 + size])
    with opened(left) as store:
        assert len(store.read.list_jobs("acme", 50)) == 9


def test_a_file_without_a_number_is_opened_with_its_log_and_gets_one(path: Path) -> None:
    live(path, 2)
    with closing(apsw.Connection(str(path))) as db:  # as an earlier release would write
        db.pragma("application_id", 0)
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        db.execute("DELETE FROM attestation_outbox")
        left = path.with_name("left.db")
        shutil.copyfile(path, left)
        shutil.copyfile(log_of(path), log_of(left))
    assert number_of(left) == 0
    opened(left).close()
    assert number_of(left) != 0


def test_every_new_file_and_every_backup_has_a_number_of_its_own(path: Path) -> None:
    files = [path.with_name(f"{n}.db") for n in range(3)]
    for file in files:
        live(file, 1)
    backup(files[0], path.with_name("kept.db"), binding=anything_binds)
    numbers = [number_of(file) for file in (*files, path.with_name("kept.db"))]
    assert len(set(numbers)) == 4
    assert all(0 < number < 2**31 for number in numbers)
    compact(files[0])
    live(files[0], 1)
    assert number_of(files[0]) == numbers[0]


def test_a_disk_without_room_leaves_the_number_for_the_next_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise apsw.FullError

    live(path, 1)
    with closing(apsw.Connection(str(path))) as db:
        db.pragma("application_id", 0)
        with monkeypatch.context() as patch:
            patch.setattr(log_origin, "new_number", fail)
            log_origin.give_number(db)
        assert db.pragma("application_id") == 0
        log_origin.give_number(db)
        assert db.pragma("application_id") != 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda log: b"\0" * 4096,
        lambda log: log[:32],
        lambda log: log[: 32 + 24 + 100],
        lambda log: b"\xff" * 32 + log[32:],
        lambda log: log[:8] + b"\0\0\0\0" + log[12:],
    ],
    ids=["zeros", "no frame", "half a frame", "no header", "no page size"],
)
def test_what_sqlite_reads_nothing_of_is_no_log(
    path: Path, spoil: Callable[[bytes], bytes]
) -> None:
    live(path, 3)
    left = killed(path, path.parent)
    log = spoil(log_of(left).read_bytes())
    shutil.copyfile(path, left)
    log_of(left).write_bytes(log)
    with opened(left) as store:
        assert len(store.read.list_jobs("acme", 50)) == 4


def test_another_programs_file_is_still_told_as_that(path: Path) -> None:
    path.parent.mkdir(mode=0o700)
    left = path.with_name("left.db")
    with closing(apsw.Connection(str(path))) as db:
        db.pragma("journal_mode", "wal")
        db.execute("CREATE TABLE theirs (a)")
        shutil.copyfile(path, left)
        shutil.copyfile(log_of(path), log_of(left))
    with pytest.raises(OpenRefusedError):
        opened(left)
