"""Builds a root file system from Debian packages: beside its place, and moved there at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rookhold_exec.rootfs import debian, layout, packs, pins
from rookhold_exec.rootfs.errors import (
    BuildFailedError,
    PackagesDifferError,
    TargetError,
    TargetExistsError,
)
from rookhold_exec.rootfs.inside import find_in
from rookhold_exec.rootfs.manifest import digest_of
from rookhold_exec.rootfs.unpack import Tree
from rookhold_exec.rootfs.verify import Rootfs, examine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_INTERPRETERS = {"python": "python3", "node": "node", "bash": "bash"}
_STATUS = "var/lib/dpkg/status"


def _quiet(line: str) -> None:
    del line


def build(
    directory: str,
    *,
    mirrors: Sequence[str] = (),
    newer: bool = False,
    tell: Callable[[str], None] = _quiet,
) -> Rootfs:
    """Build a root file system at `directory`, which must not exist or be empty.

    Exactly the pinned packages make it up; with `newer` the versions that the mirror has now are
    taken, and `tell` hears how they differ. A failure leaves nothing behind.
    """
    target = Path(os.path.abspath(directory))  # noqa: PTH100 - links stay what they are
    _check_target(target)
    try:
        stage = tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".building", dir=target.parent)
    except OSError as error:
        raise TargetError from error
    try:
        root = f"{stage}/root"
        Path(root).mkdir(mode=0o755)
        _fill(root, mirrors=mirrors, newer=newer, tell=tell)
        built = examine(root)
        _check_target(target)
        Path(root).rename(target)  # takes the place of an empty directory, of nothing else
    except OSError as error:
        raise TargetError(os.strerror(error.errno or 0)) from error
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return Rootfs(
        path=str(target),
        digest=built.digest,
        packs=built.packs,
        device=built.device,
        inode=built.inode,
        entries=built.entries,
        bytes=built.bytes,
    )


def _check_target(target: Path) -> None:
    try:
        if target.is_symlink() or (target.exists() and any(target.iterdir())):
            raise TargetExistsError
    except OSError as error:  # a file, or a directory that is not ours to read
        raise TargetExistsError from error


def _fill(root: str, *, mirrors: Sequence[str], newer: bool, tell: Callable[[str], None]) -> None:
    wanted = pins.load()
    tree = Tree(root, wanted.epoch)
    with debian.system(wanted, mirrors=mirrors, newer=newer, tell=tell) as stream:
        tree.unpack(stream)
    got = pins.installed(Path(root, _STATUS).read_text("utf-8"))
    for difference in (different := pins.differences(wanted.packages, got)):
        tell(f"N: {difference}")
    if different and not newer:
        raise PackagesDifferError("; ".join(different))
    for path in layout.DIRECTORIES:
        tree.directory(path)
    for path, text in layout.FILES.items():
        tree.text(path, text)
    missing = [name for name in _INTERPRETERS.values() if find_in(root, name) is None]
    if missing:
        raise BuildFailedError(f"it lacks {', '.join(missing)}")
    tree.settle()
    tree.file(packs.RECORD, iter((packs.record(_INTERPRETERS, digest_of(root)),)))
    tree.settle()
