"""Directories of jobs on the host: whoever is dead loses them to a sweep, nobody else."""

import os
import threading
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

import pytest

from rookhold_exec.launcher import directory


def fill(path: Path) -> None:
    (path / "deep" / "deeper").mkdir(parents=True)
    (path / "deep" / "deeper" / "file").write_text("left")
    (path / "link").symlink_to("/etc")
    (path / "deep").chmod(0)


def test_a_sweep_takes_what_nobody_holds_and_follows_no_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    root = tmp_path / "jobs"
    left = root / "job-left"
    left.mkdir(parents=True)
    fill(left)
    (left / "out").symlink_to(outside)
    (root / "job-link").symlink_to(outside)
    directory.sweep(str(root))
    assert [path.name for path in root.iterdir()] == ["job-link"]
    assert (outside / "kept").exists()


def test_a_sweep_spares_what_is_held_and_what_is_not_a_jobs(tmp_path: Path) -> None:
    held = directory.make(str(tmp_path / "job-held"))
    (tmp_path / "job-held" / "file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "job-file").touch()
    directory.sweep(str(tmp_path))
    assert (tmp_path / "job-held" / "file").exists()
    assert (tmp_path / "other").exists()
    assert (tmp_path / "job-file").exists()
    os.close(held)
    directory.sweep(str(tmp_path))
    assert not (tmp_path / "job-held").exists()


def test_a_sweep_without_a_jobs_root_does_nothing(tmp_path: Path) -> None:
    directory.sweep(str(tmp_path / "absent"))


def test_a_directory_that_is_there_already_is_not_taken_over(tmp_path: Path) -> None:
    os.close(directory.make(str(tmp_path / "job-one")))
    with pytest.raises(FileExistsError):
        directory.make(str(tmp_path / "job-one"))


def test_sweeps_that_never_end_cannot_take_a_directory_from_its_maker(tmp_path: Path) -> None:
    over = threading.Event()

    def keep_sweeping() -> None:
        while not over.is_set():
            directory.sweep(str(tmp_path))

    sweepers = [threading.Thread(target=keep_sweeping) for _ in range(2)]
    for sweeper in sweepers:
        sweeper.start()
    try:
        for n in range(300):
            path = tmp_path / f"job-{n}"
            held = directory.make(str(path))
            assert os.path.samestat(path.stat(), os.fstat(held))
            (path / "file").touch()
            assert (path / "file").exists()
            os.close(held)
    finally:
        over.set()
        for sweeper in sweepers:
            sweeper.join(30)


def test_a_made_directory_is_private_and_held_until_its_descriptor_is_closed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "job-x"
    held = directory.make(str(path))
    assert path.stat().st_mode & 0o777 == 0o700
    other = os.open(path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        flock(other, LOCK_EX | LOCK_NB)
    os.close(held)
    flock(other, LOCK_EX | LOCK_NB)
    os.close(other)
