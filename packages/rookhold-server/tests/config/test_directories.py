"""State directory and jobs root: created private, judged when found, never repaired."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from rookhold_server.config.jobs_root import SHARED, check_jobs_root, ensure_jobs_root
from rookhold_server.config.state_directory import ensure_state_directory
from rookhold_server.errors import UnsafeJobsRootError, UnsafeStateDirectoryError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_missing_state_directory_is_created_private(tmp_path: Path) -> None:
    wanted = tmp_path / "a/b/rookhold"
    ensure_state_directory(wanted)
    assert [mode(path) for path in (wanted, wanted.parent)] == [0o700, 0o700]


@pytest.mark.parametrize("found", [0o700, 0o755, 0o750])
def test_a_found_state_directory_is_taken_as_it_is(tmp_path: Path, found: int) -> None:
    directory = tmp_path / "state"
    directory.mkdir()
    directory.chmod(found)
    ensure_state_directory(directory)
    assert mode(directory) == found


def as_a_file(directory: Path) -> None:
    directory.touch()


def as_a_link(directory: Path) -> None:
    target = directory.with_name("target")
    target.mkdir(mode=0o700)
    directory.symlink_to(target)


def group_writable(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o770)


def world_writable(directory: Path) -> None:
    directory.mkdir()
    directory.chmod(0o707)


def of_another_account(directory: Path) -> None:
    directory.mkdir(mode=0o700)
    os.chown(directory, 12345, 12345)


@pytest.mark.parametrize(
    "make",
    [
        as_a_file,
        as_a_link,
        group_writable,
        world_writable,
        pytest.param(of_another_account, marks=pytest.mark.root),
    ],
)
def test_an_unsafe_state_directory_is_refused_and_left_alone(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    directory = tmp_path / "state"
    make(directory)
    before = directory.lstat()
    with pytest.raises(UnsafeStateDirectoryError) as caught:
        ensure_state_directory(directory)
    assert str(tmp_path) not in str(caught.value)
    assert directory.lstat().st_mode == before.st_mode


def test_a_missing_jobs_root_is_created_private(tmp_path: Path) -> None:
    root = tmp_path / "a/jobs"
    ensure_jobs_root(root, strict=False)
    assert mode(root) == 0o700
    ensure_jobs_root(root, strict=False)


def test_validation_alone_changes_nothing(tmp_path: Path) -> None:
    check_jobs_root(tmp_path / "a/jobs", strict=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("found", [0o755, 0o750, 0o600, 0o1700])
def test_c9_another_mode_than_0700_is_refused_and_left_alone(tmp_path: Path, found: int) -> None:
    root = tmp_path / "jobs"
    root.mkdir()
    root.chmod(found)
    with pytest.raises(UnsafeJobsRootError):
        ensure_jobs_root(root, strict=False)
    assert mode(root) == found


@pytest.mark.parametrize("where", ["jobs", "above/jobs"])
def test_c9_a_symlink_anywhere_on_the_way_is_refused(tmp_path: Path, where: str) -> None:
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    (real / "jobs").mkdir(mode=0o700)
    link = tmp_path / Path(where).parts[0]
    link.symlink_to(real if "/" in where else real / "jobs")
    with pytest.raises(UnsafeJobsRootError):
        ensure_jobs_root(tmp_path / where, strict=False)
    assert link.is_symlink()


def test_a_file_on_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(UnsafeJobsRootError):
        ensure_jobs_root(tmp_path / "a/jobs", strict=False)


@pytest.mark.parametrize("shared", sorted(SHARED, key=str))
def test_a_shared_system_directory_is_refused(shared: Path) -> None:
    with pytest.raises(UnsafeJobsRootError):
        check_jobs_root(shared, strict=False)


@pytest.mark.parametrize("text", ["/", "/jobs", "/a/../b", "relative/jobs"])
def test_a_path_of_the_wrong_shape_is_refused(text: str) -> None:
    with pytest.raises(UnsafeJobsRootError):
        check_jobs_root(Path(text), strict=False)


def test_personal_directories_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("home", "here", "temp"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    monkeypatch.chdir(tmp_path / "here")
    for name in ("home", "here", "temp"):
        with pytest.raises(UnsafeJobsRootError):
            check_jobs_root(tmp_path / name, strict=False)
    check_jobs_root(tmp_path / "home/jobs", strict=False)


def test_strict_also_judges_who_may_change_the_way(tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    check_jobs_root(above / "jobs", strict=False)
    with pytest.raises(UnsafeJobsRootError):
        check_jobs_root(above / "jobs", strict=True)
