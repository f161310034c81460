"""The directory in which development keeps database, jobs and keys."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from rookhold_server.errors import UnsafeStateDirectoryError

if TYPE_CHECKING:
    from pathlib import Path


def ensure_state_directory(directory: Path) -> None:
    """Create it private if it is missing; one that is found is judged and never changed."""
    try:
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        found = directory.lstat()
    except OSError:
        raise UnsafeStateDirectoryError("the state directory cannot be created") from None
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeStateDirectoryError("the state directory is not a directory")
    if found.st_uid not in {0, os.geteuid()}:
        raise UnsafeStateDirectoryError("the state directory belongs to another account")
    if found.st_mode & 0o022:
        raise UnsafeStateDirectoryError("others may write to the state directory")
