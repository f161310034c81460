"""A tree with something mounted in it is not what a job would see, on whatever device that is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from small_rootfs import make

pytestmark = [pytest.mark.linux_ns, pytest.mark.root]

PROGRAM = """
import sys
from rookhold_exec.rootfs import manifest
from rookhold_exec.rootfs.errors import RootfsError
try:
    print(len(manifest(sys.argv[1])) > 0)
except RootfsError as refused:
    print(refused.code, refused.inside)
"""


def told(root: Path, *commands: str) -> str:
    """Return what is said of the tree where these commands were run, in a namespace of its own."""
    script = "\n".join(["set -e", *commands, 'exec "$0" -c "$1" "$2"'])
    argv = ["unshare", "--mount", "sh", "-c", script, sys.executable, PROGRAM, root]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/file").write_text("of somebody else")
    root = make(tmp_path / "root")
    (root / "etc/a b").mkdir()
    (root / "etc/file").write_text("ours")
    return root


def test_a_tree_without_a_mount_is_read(root: Path) -> None:
    assert told(root) == "True\n"


@pytest.mark.parametrize(
    ("source", "place", "said"),
    [("other", "etc/a b", "/etc/a%20b"), ("other/file", "etc/file", "/etc/file")],
)
def test_a_bind_mount_of_the_same_device_is_refused(
    root: Path, source: str, place: str, said: str
) -> None:
    bound = told(root, f"mount --bind '{root.parent / source}' '{root / place}'")
    assert bound == f"rootfs_mounted_inside {said}\n"


def test_a_root_file_system_that_is_a_mount_itself_is_read(root: Path) -> None:
    assert told(root, f"mount --bind '{root}' '{root}'") == "True\n"


def test_a_mount_that_another_one_hides_is_none(root: Path) -> None:
    hidden = f"mount --bind '{root.parent / 'other'}' '{root / 'etc/a b'}'"
    assert told(root, hidden, f"mount --bind '{root}' '{root}'") == "True\n"
