import os
import stat
from pathlib import Path

import pytest

from rookhold_store import Store, UnsafeDatabasePathError
from rookhold_store.files import secure_database, secure_side_files
from rookhold_store.testing import Jobs


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def refused(path: Path) -> bool:
    with pytest.raises(UnsafeDatabasePathError) as caught:
        Store.open(path)
    return caught.value.code == "unsafe_database_path"


def test_missing_directories_are_made_private(tmp_path: Path) -> None:
    path = tmp_path / "one" / "two" / "jobs.db"
    before = os.umask(0o022)
    try:
        assert secure_database(path) == path
    finally:
        os.umask(before)
    assert [mode(item) for item in (path.parent.parent, path.parent, path)] == [
        0o700,
        0o700,
        0o600,
    ]


def test_a_directory_that_was_found_keeps_its_mode(tmp_path: Path) -> None:
    parent = tmp_path / "found"
    parent.mkdir()
    parent.chmod(0o755)
    secure_database(parent / "jobs.db")
    assert mode(parent) == 0o755


@pytest.mark.parametrize("found", [0o775, 0o757, 0o777])
def test_a_directory_that_others_may_write_is_refused_and_not_changed(
    tmp_path: Path, found: int
) -> None:
    parent = tmp_path / "shared"
    parent.mkdir()
    parent.chmod(found)
    assert refused(parent / "jobs.db")
    assert mode(parent) == found
    assert list(parent.iterdir()) == []


@pytest.mark.root
def test_a_sticky_directory_of_roots_passes_and_one_of_anothers_does_not(tmp_path: Path) -> None:
    parent = tmp_path / "tmp"
    parent.mkdir()
    parent.chmod(0o1777)
    secure_database(parent / "jobs.db")
    os.chown(parent, 65534, 65534)
    assert refused(parent / "jobs.db")


@pytest.mark.parametrize("directory", ["/", "/etc", "/usr/local", "/var/lib", "/dev", "/home"])
def test_the_systems_own_directories_are_refused(directory: str) -> None:
    name = "rookhold-test-must-not-exist.db"
    assert refused(Path(directory, name))
    assert not Path(directory, name).exists()


def test_a_symlink_anywhere_in_the_path_is_refused(tmp_path: Path) -> None:
    real = tmp_path / "real"
    (real / "sub").mkdir(parents=True, mode=0o700)
    secure_database(real / "sub" / "jobs.db")
    (tmp_path / "link").symlink_to(real)
    (real / "link.db").symlink_to(real / "sub" / "jobs.db")
    (real / "dangling.db").symlink_to(real / "nowhere")
    for path in (
        tmp_path / "link" / "sub" / "jobs.db",
        tmp_path / "link" / "new" / "jobs.db",
        real / "link.db",
        real / "dangling.db",
    ):
        assert refused(path)
    assert not (real / "nowhere").exists()
    assert not (real / "new").exists()


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_symlinked_side_file_is_refused(tmp_path: Path, suffix: str) -> None:
    parent = tmp_path / "state"
    path = secure_database(parent / "jobs.db")
    target = tmp_path / "target"
    target.write_text("precious")
    (parent / f"jobs.db{suffix}").symlink_to(target)
    assert refused(path)
    assert target.read_text() == "precious"


def test_a_database_with_a_second_name_is_refused(tmp_path: Path) -> None:
    path = secure_database(tmp_path / "state" / "jobs.db")
    os.link(path, tmp_path / "other-name")
    assert refused(path)


@pytest.mark.parametrize("kind", ["directory", "fifo"])
def test_a_database_that_is_no_regular_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "state" / "jobs.db"
    path.parent.mkdir(mode=0o700)
    if kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    assert refused(path)


@pytest.mark.root
def test_a_database_of_another_user_is_refused(tmp_path: Path) -> None:
    path = secure_database(tmp_path / "state" / "jobs.db")
    os.chown(path, 65534, 65534)
    assert refused(path)


def test_an_existing_file_of_ours_is_narrowed(tmp_path: Path) -> None:
    path = secure_database(tmp_path / "state" / "jobs.db")
    path.chmod(0o644)
    secure_database(path)
    assert mode(path) == 0o600


def test_looking_at_an_open_database_keeps_sqlites_locks(store: Store, jobs: Jobs) -> None:
    """To close a descriptor of the file would drop the POSIX locks of the whole process."""
    with store.reader():
        before = Path("/proc/locks").read_text()
        secure_database(store.path)
        secure_side_files(store.path)
        assert Path("/proc/locks").read_text().count(f" {os.getpid()} ") == before.count(
            f" {os.getpid()} "
        )
    jobs.finished()


def test_a_relative_path_is_taken_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert secure_database("state/../state/jobs.db") == tmp_path / "state" / "jobs.db"


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refused(tmp_path / "file" / "jobs.db")


@pytest.mark.parametrize("name", ["nul\0byte", os.fsdecode(b"latin\xe9")])
def test_a_path_that_sqlite_cannot_be_given_is_refused(tmp_path: Path, name: str) -> None:
    for place in (tmp_path / name, tmp_path / name / "jobs.db"):
        with pytest.raises(UnsafeDatabasePathError):
            Store.open(place)
    assert list(tmp_path.iterdir()) == []
