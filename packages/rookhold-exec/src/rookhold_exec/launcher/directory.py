"""A job's directory on the host: made and held for it, removed with all in it, swept after a crash.

Whoever holds a shared lock on it owns it. So a sweep takes what the dead have left, and spares the
jobs of every living supervisor, those of another gateway with the same jobs root too.
"""

from __future__ import annotations

import os
import stat
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from time import monotonic

PREFIX = "job-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SWEEP_SECONDS = 5.0  # at the start of a launcher; what is left then is for the next one
_FOREVER = float("inf")


def make(path: str) -> int:
    """Make it and return a descriptor; no sweep touches it while that is open."""
    while True:
        os.mkdir(path, 0o700)
        try:
            held = os.open(path, _DIRECTORY)
        except FileNotFoundError:  # a sweep was quicker than the lock
            continue
        try:
            flock(held, LOCK_SH)
        except OSError:  # a file system without such locks: then no sweep gets one either
            return held
        if _is(path, held):
            return held
        os.close(held)


def _is(path: str, held: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(held))
    except FileNotFoundError:
        return False


def sweep(root: str) -> None:
    """Remove the directories of jobs that nobody holds any more."""
    until = monotonic() + _SWEEP_SECONDS
    try:
        names = os.listdir(root)
    except OSError:  # no job has ever had one
        return
    for name in names:
        if name.startswith(PREFIX):
            _sweep_one(f"{root}/{name}", until)


def _sweep_one(path: str, until: float) -> None:
    try:
        held = os.open(path, _DIRECTORY)
    except OSError:  # its own supervisor has just removed it, or it is no directory
        return
    try:
        flock(held, LOCK_EX | LOCK_NB)
        remove(path, until)
    except OSError:  # it is held
        return
    finally:
        os.close(held)


def remove(path: str, until: float = _FOREVER) -> None:
    """Remove it with all in it, following no link; nothing if it is gone, or while it is changed.

    One directory is open at a time and a deep tree is taken apart by renaming, so that neither
    recursion nor descriptors run out.
    """
    try:
        top = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        serial = 0
        while (names := os.listdir(top)) and monotonic() < until:
            for name in names:
                if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                    os.unlink(name, dir_fd=top)
                    continue
                serial = _lift(top, name, serial)
                os.rmdir(name, dir_fd=top)
        os.rmdir(path)
    except OSError:
        return  # somebody else changes it; the sweep at the next start has another go
    finally:
        os.close(top)


def _lift(top: int, name: str, serial: int) -> int:
    """Empty one directory: files go, directories move up beside it."""
    os.chmod(name, 0o700, dir_fd=top, follow_symlinks=True)
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=top)
    try:
        for below in os.listdir(inner):
            if stat.S_ISDIR(os.lstat(below, dir_fd=inner).st_mode):
                os.chmod(below, 0o700, dir_fd=inner)
                serial += 1
                os.rename(below, f".gone-{os.getpid()}-{serial}", src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(below, dir_fd=inner)
    finally:
        os.close(inner)
    return serial
