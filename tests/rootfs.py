"""A real root file system for tests, built from Debian packages once and kept by its contents' key.

It takes the versions that the mirror has today, so that tests go on running after an update.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).resolve().parent.parent
_SOURCES: Final = _ROOT / "packages/rookhold-exec/src/rookhold_exec/rootfs"
# What decides what is built; how it is read and judged does not.
_BUILDERS: Final = ("packages.txt", "layout.py", "debian.py", "unpack.py", "build.py", "packs.py")
_VARIABLE: Final = "ROOKHOLD_TEST_CACHE"
_GIVEN: Final = "ROOKHOLD_TEST_ROOTFS"  # where one was put for us, as in a virtual machine
_GIVEN: Final = "ROOKHOLD_TEST_ROOTFS"  # one that is there already, as in the VM


@pytest.fixture(scope="session")
def rootfs_path() -> Path:
    """The root file system that isolating backends are tested with; mark such a test `rootfs`."""
    return test_rootfs()


def test_rootfs() -> Path:
    """Return the built root file system, building it if nobody has yet; never change it."""
    from rookhold_exec.rootfs.build import build

    place = _place()
    if not place.exists():
        place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        assert _is_ours(place.parent), "somebody else made the folder for what tests keep"
        with (place.parent / f"{place.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.exists():
                build(str(place), newer=True)
    return place


test_rootfs.__test__ = False  # type: ignore[attr-defined] # a fixture's maker, not a test


@cache
def lacking() -> str:
    """Say what this host lacks to build one; nothing if one is there."""
    from rookhold_exec.rootfs import debian, pins
    from rookhold_exec.rootfs.errors import RootfsError

    if _place().exists():
        return ""
    if not (tool := shutil.which("mmdebstrap")):
        return "no mmdebstrap to build a root file system with"
    suite = pins.load().suite
    try:
        given = [f"--aptopt={line}" for line in debian.apt_options()]
        mirrors = debian.sources(suite, ())
    except RootfsError as error:
        return str(error)
    mode = "root" if os.geteuid() == 0 else "unshare"
    argv = [tool, "--simulate", f"--mode={mode}", "--variant=custom", "--include=base-files"]
    done = subprocess.run(
        [*argv, "--format=null", *given, suite, "-", *mirrors],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=300,
    )
    return "" if done.returncode == 0 else "mmdebstrap cannot work here, or no mirror answers"


def _place() -> Path:
    if given := os.environ.get(_GIVEN):
        return Path(given)
    if given := os.environ.get(_GIVEN):
        return Path(given)
    digest = hashlib.sha256(f"{os.geteuid()}".encode())
    for name in _BUILDERS:
        digest.update((_SOURCES / name).read_bytes())
    return _cache() / f"rootfs-{digest.hexdigest()[:16]}"


def _cache() -> Path:
    """Return a folder whose every parent is safe to keep a root of sandboxes in."""
    if given := os.environ.get(_VARIABLE):
        return Path(given)
    if all(_is_ours(folder) for folder in (_ROOT, *_ROOT.parents)):
        return _ROOT / ".cache"
    return Path(tempfile.gettempdir()) / f"rookhold-tests-{os.geteuid()}"


def _is_ours(folder: Path) -> bool:
    status = folder.stat()
    by_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    sticky = status.st_mode & stat.S_ISVTX and status.st_uid == 0
    return status.st_uid in {0, os.geteuid()} and (not by_others or bool(sticky))
