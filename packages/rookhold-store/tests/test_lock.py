import contextlib
import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rookhold_store import DatabaseLockedError, InstanceLock, UnsafeDatabasePathError


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    with InstanceLock(path) as held:
        held.acquire()
        with pytest.raises(DatabaseLockedError) as caught:
            InstanceLock(path).acquire()
        assert caught.value.code == "database_locked"
    with InstanceLock(path):
        pass


def test_another_process_is_kept_out_until_the_holder_dies(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    script = (
        "import sys; from rookhold_store import InstanceLock\n"
        "InstanceLock(sys.argv[1]).acquire(); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(DatabaseLockedError):
            InstanceLock(path).acquire()
        other.kill()
        other.wait(30)
    with InstanceLock(path):
        pass


def test_the_lock_lies_in_the_real_directory_and_is_private(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    before = os.umask(0)
    try:
        with InstanceLock(tmp_path / "link" / "jobs.db"):
            lock = real / ".jobs.db.rookhold.lock"
            assert stat.S_IMODE(lock.lstat().st_mode) == 0o600
            with pytest.raises(DatabaseLockedError):
                InstanceLock(real / "jobs.db").acquire()
    finally:
        os.umask(before)


def test_a_symlinked_lock_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "target"
    (tmp_path / ".jobs.db.rookhold.lock").symlink_to(target)
    with pytest.raises(UnsafeDatabasePathError):
        InstanceLock(tmp_path / "jobs.db").acquire()
    assert not target.exists()


def test_a_lock_that_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".jobs.db.rookhold.lock")
    with pytest.raises(UnsafeDatabasePathError):
        InstanceLock(tmp_path / "jobs.db").acquire()


def test_a_lock_file_with_a_second_name_is_refused_and_that_file_is_not_changed(
    tmp_path: Path,
) -> None:
    other = tmp_path / "other"
    other.write_text("precious")
    other.chmod(0o644)
    os.link(other, tmp_path / ".jobs.db.rookhold.lock")
    with pytest.raises(UnsafeDatabasePathError):
        InstanceLock(tmp_path / "jobs.db").acquire()
    assert stat.S_IMODE(other.lstat().st_mode) == 0o644


@pytest.mark.root
def test_a_lock_file_of_another_user_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / ".jobs.db.rookhold.lock"
    lock.touch()
    os.chown(lock, 65534, 65534)
    with pytest.raises(UnsafeDatabasePathError) as caught:
        InstanceLock(tmp_path / "jobs.db").acquire()
    assert caught.value.code == "unsafe_database_path"


def test_a_lock_file_that_is_removed_while_it_is_taken_does_not_let_two_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.db"
    lock = InstanceLock(path)
    flock = fcntl.flock

    def removed_first(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        lock.path.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with lock, pytest.raises(DatabaseLockedError):
        InstanceLock(path).acquire()


def test_only_one_of_many_that_come_at_once_gets_the_lock(tmp_path: Path) -> None:
    script = (
        "import sys; from rookhold_store import DatabaseLockedError, InstanceLock\n"
        "sys.stdin.readline()\n"
        "try:\n    InstanceLock(sys.argv[1]).acquire(); print('held', flush=True)\n"
        "except DatabaseLockedError: print('locked', flush=True)\n"
        "sys.stdin.readline()"
    )
    with contextlib.ExitStack() as stack:
        others = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", script, str(tmp_path / "jobs.db")],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(6)
        ]
        for other in others:
            assert other.stdin is not None
            other.stdin.write("go\n")
            other.stdin.flush()
        said = [other.stdout.readline() for other in others if other.stdout is not None]
        assert sorted(said) == ["held\n"] + ["locked\n"] * 5
        for other in others:
            assert other.stdin is not None
            other.stdin.write("end\n")
            other.stdin.flush()
