"""A backup is complete, of one moment, verified, private, and never replaces anything."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import apsw
import pytest

from rookhold_store import Store, StoreError
from rookhold_store.backup import backup
from rookhold_store.errors import BackupUnsoundError
from rookhold_store.testing import Jobs, TickingClock, anything_binds
from rookhold_store.testing.lineage import make_old
from rookhold_store.testing.population import populate
from rookhold_store.testing.specimen import Made, binding, unguarded
from rookhold_store.verify import Progress, verify

if TYPE_CHECKING:
    from pathlib import Path


def names(directory: Path) -> list[str]:
    return sorted(item.name for item in directory.iterdir())


@pytest.fixture
def full(store: Store) -> Store:
    populate(store, 120)
    return store


def test_a_backup_made_beside_a_writer_verifies_and_opens(full: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    done = threading.Event()
    written = 0

    def write() -> None:
        nonlocal written
        jobs = Jobs(full)
        while not done.is_set():
            jobs.finished()
            written += 1

    thread = threading.Thread(target=write)
    thread.start()
    seen: list[Progress] = []
    try:
        made = backup(full.path, target, binding=anything_binds, progress=seen.append)
    finally:
        done.set()
        thread.join()
    assert written
    assert made.jobs is not None
    assert 120 <= made.jobs <= 120 + written
    assert made.bytes == target.stat().st_size
    assert {progress.doing for progress in seen} == {"copying", "checking"}
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert names(tmp_path) == [target.name]
    assert list(verify(target, binding=anything_binds)) == []
    with Store.open(target, binding=anything_binds) as opened:
        assert opened.read.probe()
        Jobs(opened).finished()


def test_what_exists_is_never_overwritten(full: Store, tmp_path: Path) -> None:
    for name in ("copy.db", "copy.db-wal", "copy.db-journal"):
        taken = tmp_path / name
        taken.write_text("mine")
        with pytest.raises(StoreError) as refused:
            backup(full.path, tmp_path / "copy.db")
        assert refused.value.code == "backup_target"
        assert taken.read_text() == "mine"
        taken.unlink()
    (tmp_path / "copy.db").symlink_to("elsewhere")
    with pytest.raises(StoreError):
        backup(full.path, tmp_path / "copy.db")
    assert names(tmp_path) == ["copy.db"]


def test_a_name_that_is_taken_meanwhile_is_left_alone(full: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    with pytest.raises(StoreError) as refused:
        backup(full.path, target, progress=lambda _: target.write_text("mine"))
    assert refused.value.code == "backup_target"
    assert target.read_text() == "mine"
    assert names(tmp_path) == ["copy.db"]


def test_a_file_system_without_such_a_rename_is_served_by_a_link(
    full: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookhold_store.backup._rename_to_nothing", lambda _old, _new: False)
    backup(full.path, tmp_path / "copy.db", binding=anything_binds)
    assert names(tmp_path) == ["copy.db"]
    assert (tmp_path / "copy.db").stat().st_nlink == 1


def test_a_damaged_database_has_no_backup_and_is_told_of(made: Made, tmp_path: Path) -> None:
    with unguarded(made.path) as db:
        db.execute("UPDATE jobs SET exit_code = 9 WHERE job_id = ?", (made.pending,))
    with pytest.raises(BackupUnsoundError) as refused:
        backup(made.path, tmp_path / "copy.db", binding=binding)
    assert made.pending in {item.job_id for item in refused.value.findings}  # type: ignore[attr-defined]
    assert names(tmp_path) == []


def test_an_older_version_is_copied_and_its_pages_are_checked(path: Path, tmp_path: Path) -> None:
    make_old(path, 2).close()
    made = backup(path, tmp_path / "copy.db")
    assert (made.version, made.jobs) == (2, None)
    with closing(apsw.Connection(str(tmp_path / "copy.db"))) as db:
        assert db.pragma("user_version") == 2


def test_a_second_backup_to_one_name_waits_for_nothing(full: Store, tmp_path: Path) -> None:
    codes: list[str] = []

    def again(_: Progress) -> None:
        if not codes:
            with pytest.raises(StoreError) as refused:
                backup(full.path, tmp_path / "copy.db")
            codes.append(refused.value.code)

    backup(full.path, tmp_path / "copy.db", binding=anything_binds, progress=again)
    assert codes == ["backup_target"]


def test_a_place_where_nothing_can_be_made_is_refused(full: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError) as refused:
        backup(full.path, tmp_path / "no" / "copy.db")
    assert refused.value.code == "backup_target"


def test_a_failed_write_leaves_nothing(full: Store, tmp_path: Path) -> None:
    def fail(_: Progress) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(StoreError) as refused:
        backup(full.path, tmp_path / "copy.db", progress=fail)
    assert refused.value.code == "storage_reserve"
    assert names(tmp_path) == []


def test_a_killed_backup_leaves_no_file_of_the_name_and_the_next_one_works(
    full: Store, tmp_path: Path
) -> None:
    target = tmp_path / "copy.db"
    program = (
        "import sys, time\n"
        "from rookhold_store.backup import backup\n"
        "def slow(progress):\n"
        "    print(progress.doing, flush=True)\n"
        "    time.sleep(60 if progress.doing == sys.argv[3] else 0)\n"
        "backup(sys.argv[1], sys.argv[2], progress=slow)\n"
    )
    for moment in ("copying", "checking"):
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(full.path), str(target), moment],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        while moment not in process.stdout.readline():
            assert process.poll() is None
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        process.stdout.close()
        assert names(tmp_path) == [f".{target.name}.partial"]
    backup(full.path, target, binding=anything_binds)
    assert names(tmp_path) == [target.name]


def test_a_backup_is_of_one_moment(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    populate(store, 30)
    monkeypatch.setattr("rookhold_store.backup.STEP_PAGES", 4)
    steps = 0

    def write(progress: Progress) -> None:
        nonlocal steps
        if progress.doing == "copying":
            steps += 1
            Jobs(store).finished()

    made = backup(store.path, tmp_path / "copy.db", binding=anything_binds, progress=write)
    assert steps > 10
    assert made.jobs == 30


def test_a_file_that_nobody_has_open_is_copied_without_a_trace(path: Path, tmp_path: Path) -> None:
    with Store.open(path, clock=TickingClock()) as store:
        Jobs(store).finished()
    before = names(path.parent)
    backup(path, tmp_path / "copy.db")
    assert names(path.parent) == before
