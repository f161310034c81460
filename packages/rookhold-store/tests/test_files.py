import os
import socket
import stat
from pathlib import Path

import pytest

from rookhold_store import OpenRefusedError, Store, UnsafeDatabasePathError, files
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


def make_odd(path: Path, kind: str) -> None:
    """Make something at `path` that is no regular file with one name."""
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    elif kind == "dangling":
        path.symlink_to(path.with_name("nowhere"))
    else:
        other = path.with_name("other-name")
        other.write_bytes(b"precious")
        if kind == "link":
            path.symlink_to(other)
        else:
            os.link(other, path)


ODD = [
    *("directory", "fifo", "socket", "dangling", "link", "second-name"),
    pytest.param("device", marks=pytest.mark.root),
]


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
@pytest.mark.parametrize("beside", [True, False])
def test_what_is_no_regular_file_with_one_name_is_refused_in_every_place(
    tmp_path: Path, kind: str, suffix: str, beside: bool
) -> None:
    path = tmp_path / "state" / "jobs.db"
    path.parent.mkdir(mode=0o700)
    if beside and suffix:
        Store.open(path).close()
    make_odd(path.with_name(path.name + suffix), kind)
    before = {item.name: item.lstat() for item in path.parent.iterdir()}
    assert refused(path)
    after = {item.name: item.lstat() for item in path.parent.iterdir()}
    assert after.keys() == before.keys(), "nothing is made, nothing is removed"
    assert all(after[name].st_mode == found.st_mode for name, found in before.items())
    other = path.with_name("other-name")
    assert not other.exists() or other.read_bytes() == b"precious"


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_the_log_of_a_database_that_is_gone_is_not_thrown_away(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "state" / "jobs.db"
    path.parent.mkdir(mode=0o700)
    log = path.with_name(path.name + suffix)
    log.write_bytes(b"what is left of it")
    log.chmod(0o600)
    assert refused(path)
    assert log.read_bytes() == b"what is left of it"
    assert not path.exists()
    log.write_bytes(b"")  # nothing to lose
    Store.open(path).close()


def test_a_log_whose_database_was_moved_away_serves_it_again_when_it_is_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state" / "jobs.db"
    with Store.open(path) as store:
        job_id = Jobs(store).accept()
        copy = tmp_path / "copy"
        copy.mkdir(mode=0o700)
        for name in ("jobs.db", "jobs.db-wal"):  # as a power cut would leave them
            (copy / name).write_bytes((path.parent / name).read_bytes())
    (copy / "jobs.db").rename(copy / "away.db")
    assert refused(copy / "jobs.db")
    (copy / "away.db").rename(copy / "jobs.db")
    with Store.open(copy / "jobs.db") as store:
        assert store.read.summary("acme", job_id) is not None


@pytest.mark.parametrize("content", [b"", b"x", b"SQLite format 3\0", b"\0" * 100, b"x" * 5000])
def test_a_file_that_holds_no_database_is_refused_unless_it_is_empty(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "state" / "jobs.db"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(content)
    if not content:
        with Store.open(path) as store:
            Jobs(store).finished()
        return
    with pytest.raises(OpenRefusedError) as caught:
        Store.open(path)
    assert caught.value.code == "foreign_schema"
    assert path.read_bytes() == content


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077, 0o277, 0o777])
def test_a_umask_makes_nothing_wider_and_nothing_unusable(tmp_path: Path, mask: int) -> None:
    path = tmp_path / "made" / "state" / "jobs.db"
    before = os.umask(mask)
    try:
        with Store.open(path) as store:
            Jobs(store).finished()
            files = {item.name: mode(item) for item in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert files == dict.fromkeys(("jobs.db", "jobs.db-wal", "jobs.db-shm"), 0o600)
    assert (mode(path.parent), mode(path.parent.parent)) == (0o700, 0o700)


def test_a_directory_that_anybody_may_replace_is_refused_however_far_above(
    tmp_path: Path,
) -> None:
    above = tmp_path / "anybody"
    (above / "ours" / "state").mkdir(parents=True)
    for directory in (above / "ours", above / "ours" / "state"):
        directory.chmod(0o700)
    above.chmod(0o777)
    assert refused(above / "ours" / "state" / "jobs.db")
    assert refused(above / "new" / "jobs.db")
    assert [item.name for item in above.iterdir()] == ["ours"]
    above.chmod(0o755)
    Store.open(above / "ours" / "state" / "jobs.db").close()


@pytest.mark.root
@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_a_file_of_another_user_is_refused_and_not_changed(tmp_path: Path, suffix: str) -> None:
    path = secure_database(tmp_path / "state" / "jobs.db")
    theirs = path.with_name(path.name + suffix)
    theirs.touch()
    theirs.chmod(0o644)
    os.chown(theirs, 65534, 65534)
    assert refused(path)
    assert mode(theirs) == 0o644


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


def test_a_file_that_vanishes_while_it_is_examined_is_a_refusal(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.open(path).close()

    def vanished(name: Path) -> None:
        if name == path:
            name.unlink()
            raise FileNotFoundError

    monkeypatch.setattr(files, "narrow", vanished)
    with pytest.raises(UnsafeDatabasePathError):
        Store.open(path)
