"""S21 and S23: the file, and whether it is still what it was."""

import os
import stat
from pathlib import Path

import apsw
import pytest

from rookhold_store import Store, UnsafeDatabasePathError, files
from rookhold_store.testing import Jobs


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize(
    "damage",
    [
        "DROP TABLE jobs",
        "DROP TABLE events",
        "PRAGMA user_version = 3",
        "DROP TRIGGER schema_migrations_no_delete; DELETE FROM schema_migrations WHERE version = 2",
    ],
)
def test_s21_the_readiness_probe_finds_what_is_broken_and_repairs_nothing(
    store: Store, jobs: Jobs, raw: apsw.Connection, damage: str
) -> None:
    jobs.finished()
    assert store.read.probe()
    raw.execute("PRAGMA foreign_keys = OFF")
    raw.execute(damage)
    damaged = raw.execute("SELECT name, sql FROM sqlite_schema").fetchall()
    version = raw.pragma("user_version")
    assert not store.read.probe()
    assert not store.read.probe()
    assert raw.execute("SELECT name, sql FROM sqlite_schema").fetchall() == damaged
    assert raw.pragma("user_version") == version


def test_s23_what_is_made_is_private_and_what_was_found_is_refused_or_left(
    tmp_path: Path,
) -> None:
    before = os.umask(0)
    try:
        path = tmp_path / "made" / "deep" / "jobs.db"
        with Store.open(path) as store:
            Jobs(store).finished()
            held = sorted(path.parent.iterdir())
            assert [file.name for file in held] == ["jobs.db", "jobs.db-shm", "jobs.db-wal"]
            assert {mode(file) for file in held} == {0o600}
        assert {mode(path.parent), mode(path.parent.parent)} == {0o700}

        found = tmp_path / "found"
        found.mkdir(mode=0o755)
        Store.open(found / "jobs.db").close()
        assert mode(found) == 0o755

        unsafe = tmp_path / "unsafe"
        unsafe.mkdir(mode=0o777)
        with pytest.raises(UnsafeDatabasePathError):
            Store.open(unsafe / "jobs.db")
        assert mode(unsafe) == 0o777
        assert list(unsafe.iterdir()) == []
    finally:
        os.umask(before)

    link = found / "link.db"
    link.symlink_to(path)
    with pytest.raises(UnsafeDatabasePathError) as caught:
        Store.open(link)
    assert caught.value.code == "unsafe_database_path"


def test_s23_the_aliases_of_macos_are_followed_and_no_other_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alias = {Path("/tmp"), Path("/var"), Path("/etc")}
    is_symlink = Path.is_symlink
    monkeypatch.setattr(Path, "is_symlink", lambda self: self in alias or is_symlink(self))
    monkeypatch.setattr(files.sys, "platform", "darwin")
    assert files._absolute("/tmp/rookhold/jobs.db") == Path("/private/tmp/rookhold/jobs.db")
    assert files._absolute("/var/folders/jobs.db") == Path("/private/var/folders/jobs.db")
    assert files._absolute("/opt/jobs.db") == Path("/opt/jobs.db")
    monkeypatch.setattr(files.sys, "platform", "linux")
    assert files._absolute("/tmp/rookhold/jobs.db") == Path("/tmp/rookhold/jobs.db")
