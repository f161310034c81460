"""The directory in which development keeps database, jobs and keys."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from rookhold_server.errors import NotUsableError, UnsafeStateDirectoryError

if TYPE_CHECKING:
    from pathlib import Path


def ensure_state_directory(directory: Path) -> None:
    """Create it private if it is missing; one that is found is judged and never changed."""
    try:
        make_private(directory)
        found = directory.lstat()
    except OSError:
        raise UnsafeStateDirectoryError("the state directory cannot be created") from None
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeStateDirectoryError("the state directory is not a directory")
    if found.st_uid not in {0, os.geteuid()}:
        raise UnsafeStateDirectoryError("the state directory belongs to another account")
    if found.st_mode & 0o022:
        raise UnsafeStateDirectoryError("others may write to the state directory")


def ensure_database_directory(directory: Path) -> None:
    """Create it private if it is missing; the store judges one that is found."""
    with contextlib.suppress(OSError):
        make_private(directory)
    check_usable(directory, "the directory of ROOKHOLD_DB")


def check_usable(directory: Path, what: str) -> None:
    """Refuse a directory in which this account cannot make and remove files."""
    if not os.access(directory, os.W_OK | os.X_OK):
        raise NotUsableError(f"the account of the server cannot use {what}")


def make_private(directory: Path) -> None:
    """Create what is missing on the way, 0700 each; what exists is left as it is, unjudged.

    Raises OSError.
    """
    for component in (*reversed(directory.parents), directory):
        with contextlib.suppress(FileExistsError):
            if not component.exists():
                component.mkdir(mode=0o700)
