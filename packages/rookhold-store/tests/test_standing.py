"""A database whose file is taken away, replaced or may only be read."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from rookhold_store import (
    SchemaVersionError,
    StorageUnavailableError,
    Store,
    UnsafeDatabasePathError,
    connection,
)
from rookhold_store.files import SIDE_SUFFIXES
from rookhold_store.testing import Jobs


@pytest.mark.parametrize("suffix", ["", "-wal"])
@pytest.mark.parametrize("what", ["removed", "moved", "replaced"])
def test_nothing_is_answered_from_a_file_that_is_not_at_its_name_any_more(
    store: Store, jobs: Jobs, what: str, suffix: str
) -> None:
    job_id = jobs.finished()
    file = store.path.with_name(store.path.name + suffix)
    aside = file.with_name("aside")
    file.rename(aside)
    if what == "removed":
        aside.unlink()
    elif what == "replaced":
        shutil.copyfile(aside, file)
    for _ in range(2):
        with pytest.raises(StorageUnavailableError) as caught:
            jobs.accept()
        assert caught.value.code == "storage_unavailable"
    with pytest.raises(StorageUnavailableError), store.reader(), store.reader():
        pass  # an idle connection reads what it always read; a new one is not opened
    if what == "moved":
        aside.rename(file)
        jobs.accept()
        assert store.read.summary("acme", job_id) is not None


def test_a_file_that_is_refused_is_not_changed_by_its_own_log(path: Path) -> None:
    with Store.open(path) as store:
        Jobs(store).finished()
        copy = path.parent / "copy.db"
        for suffix in ("", "-wal"):  # as a power cut would leave them
            shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
    db = apsw.Connection(str(copy))
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.pragma("user_version", 99)
    db.close()
    before = {suffix: Path(f"{copy}{suffix}").read_bytes() for suffix in ("", "-wal")}
    assert before["-wal"]
    with pytest.raises(SchemaVersionError):
        Store.open(copy)
    assert {suffix: Path(f"{copy}{suffix}").read_bytes() for suffix in ("", "-wal")} == before


def test_a_log_runs_into_its_file_once_it_is_trusted(path: Path) -> None:
    with Store.open(path) as store:
        Jobs(store).finished()
    assert not path.with_name(path.name + "-wal").exists()
    size = path.stat().st_size
    with Store.open(path) as store:
        jobs = Jobs(store)
        for _ in range(300):
            jobs.accept()
        assert path.stat().st_size > size


READ_ONLY = """
import subprocess, sys
from pathlib import Path
from rookhold_store import Store, StoreError
place = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
made = place / "state" / "jobs.db"
Store.open(made).close()
subprocess.run(["mount", "-o", "remount,ro", place], check=True)
for path in (made, made.with_name("new.db"), place / "new" / "jobs.db"):
    try:
        Store.open(path)
    except StoreError as error:
        print(error.code)
"""


@pytest.mark.root
@pytest.mark.linux_ns
def test_a_file_system_that_takes_no_writes_is_told_as_such(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, "-c", READ_ONLY, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["storage_unavailable"] * 3


def test_a_file_system_without_room_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(StorageUnavailableError) as caught:
        Store.open(tmp_path / "state" / "jobs.db")
    assert caught.value.code == "storage_reserve"


@pytest.mark.root
def test_nobody_else_can_put_a_log_there_during_the_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory such as /tmp everybody may make a file whose name is still free."""
    parent = tmp_path / "everybody"
    parent.mkdir()
    parent.chmod(0o1777)
    path = parent / "jobs.db"
    Store.open(path).close()
    assert [file.name for file in parent.iterdir()] == ["jobs.db"]
    open_existing = connection.open_existing
    refused = []

    def planting_first(wanted: Path) -> apsw.Connection:
        for suffix in SIDE_SUFFIXES:
            with pytest.raises(FileExistsError):
                Path(f"{wanted}{suffix}").open("xb").close()
            refused.append(suffix)
        return open_existing(wanted)

    monkeypatch.setattr(connection, "open_existing", planting_first)
    with Store.open(path) as store:
        Jobs(store).finished()
    assert tuple(refused) == SIDE_SUFFIXES
    monkeypatch.undo()
    with Store.open(path) as store:
        assert len(store.read.list_jobs("acme")) == 1


@pytest.mark.root
@pytest.mark.parametrize("suffix", SIDE_SUFFIXES)
def test_a_file_that_somebody_put_beside_the_database_in_time_is_refused(
    tmp_path: Path, suffix: str
) -> None:
    parent = tmp_path / "everybody"
    parent.mkdir()
    parent.chmod(0o1777)
    Store.open(parent / "jobs.db").close()
    theirs = parent / f"jobs.db{suffix}"
    theirs.write_bytes(b"theirs")
    os.chown(theirs, 65534, 65534)
    with pytest.raises(UnsafeDatabasePathError):
        Store.open(parent / "jobs.db")
    assert theirs.read_bytes() == b"theirs"


def test_a_database_that_is_swapped_for_a_link_during_the_open_is_not_followed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.open(path).close()
    target = tmp_path / "target.db"
    shutil.copyfile(path, target)
    before = target.read_bytes()
    open_existing = connection.open_existing

    def swapped_first(wanted: Path) -> apsw.Connection:
        wanted.unlink()
        wanted.symlink_to(target)
        return open_existing(wanted)

    monkeypatch.setattr(connection, "open_existing", swapped_first)
    with pytest.raises(StorageUnavailableError):
        Store.open(path)
    assert target.read_bytes() == before
