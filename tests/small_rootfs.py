"""A root file system of a few files, for tests of how one is described and judged."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

DIRECTORIES = ("proc", "dev", "tmp", "work", "etc", "etc/rookhold", "usr", "usr/bin", "usr/lib")


def make(root: Path) -> Path:
    root.mkdir(mode=0o755)
    root.chmod(0o755)  # whatever the umask is
    for name in DIRECTORIES:
        (root / name).mkdir()
        (root / name).chmod(0o755)
    write(root / "etc/hosts", b"127.0.0.1 localhost\n")
    for program in ("python3.11", "node", "bash"):
        write(root / "usr/bin" / program, b"#!", mode=0o755)
    (root / "usr/bin/python3").symlink_to("python3.11")
    (root / "bin").symlink_to("usr/bin")
    return root


def write(path: Path, content: bytes, mode: int = 0o644) -> Path:
    path.write_bytes(content)
    path.chmod(mode)
    return path
