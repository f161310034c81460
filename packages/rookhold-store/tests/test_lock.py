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
