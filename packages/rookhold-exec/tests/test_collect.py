import os
from pathlib import Path

import pytest

from rookhold_exec.launcher import collect


@pytest.fixture
def work(tmp_path: Path) -> int:
    (tmp_path / "output").mkdir()
    return os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)


def test_a_file_is_read_whole(work: int, tmp_path: Path) -> None:
    content = os.urandom(collect.FILE_MAX)
    (tmp_path / "output/a").write_bytes(content)
    assert collect.read(work, "output/a", collect.TOTAL_MAX) == content


@pytest.mark.parametrize(
    "target", ["/etc/passwd", "../../etc/passwd", "/proc/self/root/etc/passwd", "a", "b", "none"]
)
def test_no_link_is_followed(work: int, tmp_path: Path, target: str) -> None:
    (tmp_path / "output/a").write_text("x")
    (tmp_path / "output/link").symlink_to(target)
    assert collect.read(work, "output/link", 100) == "link"
    assert collect.read(work, "output/link/passwd", 100) == "link"


def test_nothing_above_the_directory_is_reached(work: int, tmp_path: Path) -> None:
    outside = tmp_path.parent / "outside"
    outside.write_text("x")
    for path in ("../outside", str(outside)):
        assert isinstance(collect.read(work, path, 100), str)


def test_every_other_kind_is_named(work: int, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "output/fifo")
    (tmp_path / "output/dir").mkdir()
    (tmp_path / "output/closed").touch(mode=0o000)
    (tmp_path / "output/twice").write_text("x")
    os.link(tmp_path / "output/twice", tmp_path / "output/hard")
    (tmp_path / "output/shut/deep").mkdir(parents=True)
    (tmp_path / "output/shut/deep/file").write_text("x")
    (tmp_path / "output/shut").chmod(0)
    with (tmp_path / "output/large").open("wb") as large:
        large.truncate(collect.FILE_MAX + 1)
    reasons = {
        "fifo": "not_regular",
        "dir": "not_regular",
        "closed": "unreadable",
        "shut/deep/file": "unreadable",
        "hard": "link",
        "large": "too_large",
        "none": "missing",
        "twice/below": "missing",
    }
    for name, reason in reasons.items():
        assert collect.read(work, f"output/{name}", collect.TOTAL_MAX) == reason


def test_the_total_is_limited(work: int, tmp_path: Path) -> None:
    (tmp_path / "output/a").write_bytes(b"12345")
    assert collect.read(work, "output/a", 4) == "total_too_large"
    assert collect.read(work, "output/a", 5) == b"12345"
