"""A file that is looked at is not changed, wherever it lies."""

import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from rookhold_store import Store, StoreError
from rookhold_store.moments import Short
from rookhold_store.source import Source
from rookhold_store.testing import Jobs, TickingClock, anything_binds
from rookhold_store.verify import Verification, verify

NOBODY = 65534


@pytest.fixture
def closed(path: Path) -> Path:
    with Store.open(path, binding=anything_binds, clock=TickingClock()) as store:
        Jobs(store).finished()
    return path


def seen(path: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        item.name: (item.stat().st_mtime_ns, item.stat().st_mode, item.read_bytes())
        for item in path.parent.iterdir()
    }


def test_a_file_without_a_log_is_read_without_making_one(closed: Path) -> None:
    before = seen(closed)
    assert list(verify(closed)) == []
    assert seen(closed) == before


def test_a_copy_with_its_log_is_read_through_the_log(path: Path, tmp_path: Path) -> None:
    with Store.open(path, binding=anything_binds, clock=TickingClock()) as store:
        job_id = Jobs(store).finished()
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", tmp_path / f"copy.db{suffix}")
    with closing(Source(tmp_path / "copy.db")) as source:
        count = source.at_a_moment(
            lambda view: (
                view.db.execute("SELECT count(*) FROM jobs WHERE job_id = ?", (job_id,)).get
            )
        )
        assert count == 1
    before = (tmp_path / "copy.db").read_bytes()
    assert list(verify(tmp_path / "copy.db")) == []
    assert (tmp_path / "copy.db").read_bytes() == before


def test_nothing_can_be_written_through_it(closed: Path) -> None:
    with closing(Source(closed)) as source:
        for statement in ("DELETE FROM jobs", "PRAGMA user_version = 3", "CREATE TABLE t (a)"):
            with pytest.raises(apsw.Error):
                source.db.execute(statement)


def as_nobody(path: Path) -> "subprocess.CompletedProcess[str]":
    """Verify a file in a process that may only read it, and write nowhere near it."""
    for item in (path.parent.parent, path.parent):
        item.chmod(0o555)
    for item in path.parent.iterdir():
        item.chmod(0o444)
    program = (
        "import os, sys\n"
        "from rookhold_store.verify import verify\n"  # first: then modules may be out of reach
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "path = sys.argv[1]\n"
        "assert not os.access(os.path.dirname(path), os.W_OK)\n"
        "print(list(verify(path)))\n"
    )
    try:
        return subprocess.run(
            [sys.executable, "-c", program, str(path)],
            capture_output=True,
            timeout=60,
            check=False,
            text=True,
        )
    finally:
        for item in (path.parent.parent, path.parent):
            item.chmod(0o700)


@pytest.mark.root
def test_another_account_can_verify_a_copy_in_a_directory_it_cannot_write_to(closed: Path) -> None:
    closed.chmod(0o444)
    before = seen(closed)
    done = as_nobody(closed)
    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert seen(closed) == before


def test_what_is_read_while_somebody_opens_the_file_is_read_again(closed: Path) -> None:
    opened: list[Store] = []
    with closing(Source(closed)) as source:

        def look(view: object) -> int:
            del view
            if not opened:
                opened.append(Store.open(closed, binding=anything_binds, clock=TickingClock(10**7)))
                Jobs(opened[0]).finished()
            return int(source.db.execute("SELECT count(*) FROM jobs").get)  # type: ignore[arg-type]

        assert source.at_a_moment(look) == 2
    opened[0].close()


@pytest.mark.parametrize("name", ["absent.db", "."])
def test_what_is_no_file_is_refused(closed: Path, name: str) -> None:
    with pytest.raises(StoreError) as refused:
        Source(closed.parent / name)
    assert refused.value.code == "storage_unavailable"


def test_a_name_with_odd_characters_is_that_name(path: Path) -> None:
    odd = path.with_name("a b?mode=rw&x#%41.db")
    with Store.open(odd) as store:
        Jobs(store).finished()
    assert list(verify(odd)) == []
    assert list(odd.parent.iterdir()) == [odd]


def test_a_lock_of_somebody_else_is_waited_for_and_is_no_damage(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def look(view: object) -> int:
        nonlocal looks
        del view
        looks += 1
        if looks < 3:
            raise apsw.BusyError("BusyError: database is locked")
        return looks

    with closing(Source(closed)) as source:
        assert source.at_a_moment(look) == 3
        looks = -100
        monkeypatch.setattr("rookhold_store.verify.one.check", lambda *_, **__: look(None))
        with pytest.raises(StoreError) as refused:
            list(Verification(source).findings())
        assert refused.value.code == "storage_unavailable"


@pytest.mark.root
def test_a_log_that_cannot_be_used_where_it_is_is_no_damage(path: Path) -> None:
    with Store.open(path, binding=anything_binds, clock=TickingClock()) as store:
        Jobs(store).finished()
        place = path.parent.parent / "copy"
        place.mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", place / f"a.db{suffix}")
    done = as_nobody(place / "a.db")
    assert "StorageUnavailableError: the log beside the file cannot be used here" in done.stderr


def test_a_file_that_vanishes_meanwhile_is_said(closed: Path) -> None:
    with closing(Source(closed)) as source, pytest.raises(StoreError) as refused:
        source.at_a_moment(lambda _: closed.unlink())
    assert refused.value.code == "storage_unavailable"


def test_what_looks_damaged_while_somebody_begins_to_write_is_looked_at_again(closed: Path) -> None:
    looks: list[int] = []

    def look(view: Short) -> int:
        looks.append(view.db.execute("SELECT count(*) FROM jobs").get)
        if len(looks) == 1:
            with Store.open(closed, clock=TickingClock()) as store:
                Jobs(store).accept()
            raise apsw.CorruptError("pages of two moments")
        return looks[-1]

    with closing(Source(closed)) as source:
        assert source.at_a_moment(look) == 2
    assert looks == [1, 2]


def test_damage_in_a_file_that_nobody_writes_to_is_told(closed: Path) -> None:
    def look(view: Short) -> None:
        raise apsw.CorruptError("the page is torn")

    with closing(Source(closed)) as source, pytest.raises(apsw.CorruptError):
        source.at_a_moment(look)
