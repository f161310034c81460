"""A private directory for one temporary gateway, and the removal of those left behind.

Whoever was killed cannot clean up. Each directory therefore holds a lock that its owner and its
gateway keep while either lives; the next temporary gateway removes what nobody locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .interrupts import undisturbed
from .surroundings import state_directories

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LOCK: Final = "lock"
_UNLOCKED_GRACE: Final = 3600  # seconds in which a directory may still be about to get its lock


@contextlib.contextmanager
def private_state(environ: Mapping[str, str] = os.environ) -> Iterator[tuple[Path, int]]:
    """Yield a fresh directory of mode 0700 and the descriptor of its lock; remove it at the end."""
    above = _above(environ)
    if above is not None:
        _sweep(above)
    directory = Path(tempfile.mkdtemp(prefix="gateway-", dir=above)).resolve()
    lock = -1
    try:
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield directory, lock
    finally:
        with undisturbed():
            shutil.rmtree(directory, ignore_errors=True)
            if lock >= 0:
                os.close(lock)


def _above(environ: Mapping[str, str]) -> Path | None:
    """Return a directory of the user's own for them; None where only the temp directory is left."""
    for directory in state_directories(environ):
        path = directory / "temporary"
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = path.resolve(strict=True)
            if all(_trusted(part) for part in (path, *path.parents)) and os.access(path, os.W_OK):
                return path
        except OSError:
            continue
    return None


def _trusted(directory: Path) -> bool:
    """Say whether nobody else can swap what lies below; the keys kept there need that."""
    found = directory.stat()
    shared = found.st_mode & 0o022 and not (found.st_mode & stat.S_ISVTX and found.st_uid == 0)
    return found.st_uid in {0, os.geteuid()} and not shared


def _sweep(above: Path) -> None:
    for entry in above.glob("gateway-*"):
        with contextlib.suppress(OSError):
            if entry.is_symlink() or entry.stat().st_uid != os.geteuid():
                continue
            if _abandoned(entry):
                shutil.rmtree(entry, ignore_errors=True)


def _abandoned(entry: Path) -> bool:
    try:
        lock = os.open(entry / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - entry.stat().st_mtime > _UNLOCKED_GRACE
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
