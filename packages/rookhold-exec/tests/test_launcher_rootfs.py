"""Opening what was reviewed, and telling it from anything else by its line in mountinfo."""

from __future__ import annotations

import os
import subprocess
from errno import ELOOP, ENOENT, ENOTDIR, ESTALE
from pathlib import Path

import pytest

from rookhold_exec.launcher.rootfs import open_reviewed, place, plain


def identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def test_the_directory_that_was_reviewed_is_opened(tmp_path: Path) -> None:
    fd = open_reviewed(str(tmp_path), identity(tmp_path))
    assert (os.fstat(fd).st_dev, os.fstat(fd).st_ino) == identity(tmp_path)
    os.close(fd)


def test_another_directory_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match=r"^\[Errno") as caught:
        open_reviewed(str(tmp_path / "b"), identity(tmp_path / "a"))
    assert caught.value.errno == ESTALE
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("name", "number"),
    [("link", ELOOP), ("link/below", ELOOP), ("none", ENOENT), ("file", ENOTDIR)],
)
def test_no_link_is_followed_on_the_way(tmp_path: Path, name: str, number: int) -> None:
    (tmp_path / "real/below").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"^\[Errno") as caught:
        open_reviewed(str(tmp_path / name), (0, 0))
    assert caught.value.errno == number


@pytest.mark.parametrize("name", ["plain", "with space", "back\\slash", "tab\there", "ümlaut"])
@pytest.mark.linux_ns
@pytest.mark.root
def test_its_place_is_what_a_mount_of_it_shows(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    directory.mkdir()
    fd = open_reviewed(str(directory), identity(directory))
    told = place(fd)
    os.close(fd)
    script = 'mount --bind "$1" /mnt && exec cat /proc/self/mountinfo'
    text = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", directory],
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout
    [line] = [each.split(b" ") for each in text.splitlines() if each.split(b" ")[4] == b"/mnt"]
    assert (line[2], plain(line[3])) == told


@pytest.mark.linux_ns
def test_a_mount_point_is_the_top_of_its_own_device() -> None:
    fd = open_reviewed("/proc", identity(Path("/proc")))
    device, top = place(fd)
    os.close(fd)
    found = Path("/proc").stat()
    assert device == b"%d:%d" % (os.major(found.st_dev), os.minor(found.st_dev))
    assert top == b"/"
