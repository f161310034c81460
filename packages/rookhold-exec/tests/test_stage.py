import os
import stat
from pathlib import Path

import pytest

from rookhold_exec.launcher.stage import stage


@pytest.fixture
def work(tmp_path: Path) -> int:
    os.umask(0o022)
    return os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_code_inputs_and_the_places_of_outputs_are_made(work: int, tmp_path: Path) -> None:
    content = {"code": b"print(1)", "files": [["input/a/b", b"\0"], ["input/c", b""]]}
    stage(work, "job.py", content, ["output/x/y/z", "output/w"], -1)
    assert (tmp_path / "job.py").read_bytes() == b"print(1)"
    assert (tmp_path / "input/a/b").read_bytes() == b"\0"
    assert mode(tmp_path / "input/a/b") == mode(tmp_path / "input/c") == 0o444
    assert mode(tmp_path / "input/a") == 0o755
    assert (tmp_path / "output/x/y").is_dir()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["input", "job.py", "output"]


def test_both_directories_are_there_for_a_job_without_files(work: int, tmp_path: Path) -> None:
    stage(work, "job.sh", {"code": b"", "files": []}, [], -1)
    assert (tmp_path / "input").is_dir()
    assert (tmp_path / "output").is_dir()


@pytest.mark.root
def test_what_the_job_may_change_is_its_own_and_its_inputs_are_not(
    work: int, tmp_path: Path
) -> None:
    content = {"code": b"x", "files": [["input/a/b", b"1"]]}
    stage(work, "job.py", content, ["output/d/f"], 4321)
    for name in ("job.py", "output", "output/d"):
        assert (tmp_path / name).stat().st_uid == 4321
    for name in ("input", "input/a", "input/a/b"):
        assert (tmp_path / name).stat().st_uid == 0


def test_nothing_that_is_there_is_written_over(work: int, tmp_path: Path) -> None:
    victim = tmp_path.parent / "victim"
    victim.write_text("kept")
    (tmp_path / "job.py").symlink_to(victim)
    with pytest.raises(OSError):
        stage(work, "job.py", {"code": b"lost", "files": []}, [], -1)
    assert victim.read_text() == "kept"


def test_content_that_is_not_bytes_is_refused(work: int) -> None:
    with pytest.raises(TypeError):
        stage(work, "job.py", {"code": "text", "files": []}, [], -1)
