"""The one directory below which backends may make directories for jobs."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from rookhold_server.config.state_directory import make_private
from rookhold_server.errors import UnsafeJobsRootError

# Directories that belong to the system or to everybody; a job directory of ours is none of them.
SHARED: Final = frozenset(
    Path("/", *name.split("/"))
    for names in (
        ("bin", "boot", "dev", "dev/shm", "etc", "home", "lib", "lib32", "lib64", "libx32"),
        ("media", "mnt", "opt", "proc", "root", "run", "run/lock", "run/user", "sbin", "srv"),
        ("sys", "tmp", "usr", "usr/bin", "usr/lib", "usr/local", "usr/local/bin"),
        ("usr/local/lib", "usr/local/share", "usr/sbin", "usr/share", "usr/src"),
        ("var", "var/cache", "var/lib", "var/lock", "var/log", "var/mail", "var/opt"),
        ("var/run", "var/spool", "var/tmp", "data", "workspace", "workspaces"),
        ("Users", "Library", "private", "private/tmp", "private/var", "private/var/tmp"),
    )
    for name in names
)


def check_jobs_root(root: Path, *, strict: bool) -> None:
    """Judge the path without touching it.

    `strict` (production, or a backend of a class other than none) also judges who may write to
    the root and to everything above it.
    """
    if not root.is_absolute() or ".." in root.parts:
        raise UnsafeJobsRootError("the jobs root must be absolute, without . and ..")
    if len(root.parts) < 3:
        raise UnsafeJobsRootError("the jobs root needs at least two components")
    if root in SHARED or root in _personal():
        raise UnsafeJobsRootError("the jobs root must be a directory of its own")
    for component in (*reversed(root.parents), root):
        try:
            found = component.lstat()
        except FileNotFoundError:
            return  # nothing below it exists either
        except OSError:
            raise UnsafeJobsRootError("the jobs root cannot be examined") from None
        _check_component(found, strict=strict)
    if stat.S_IMODE(found.st_mode) != 0o700:
        raise UnsafeJobsRootError("the jobs root exists with a mode other than 0700")
    if found.st_uid not in {0, os.geteuid()}:
        raise UnsafeJobsRootError("the jobs root belongs to another account")


def ensure_jobs_root(root: Path, *, strict: bool) -> None:
    """Check it, create it 0700 if it is missing, and check again what is there now."""
    check_jobs_root(root, strict=strict)
    try:
        make_private(root)
    except OSError:
        raise UnsafeJobsRootError("the jobs root cannot be created") from None
    check_jobs_root(root, strict=strict)


def _check_component(found: os.stat_result, *, strict: bool) -> None:
    if stat.S_ISLNK(found.st_mode):
        raise UnsafeJobsRootError("a symlink is on the way to the jobs root")
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeJobsRootError("something on the way to the jobs root is not a directory")
    if strict and (found.st_uid not in {0, os.geteuid()} or found.st_mode & 0o022):
        raise UnsafeJobsRootError("others may change the way to the jobs root")


def _personal() -> set[Path]:
    with contextlib.suppress(RuntimeError):  # an account without a home
        return {Path(tempfile.gettempdir()), Path.cwd(), Path.home()}
    return {Path(tempfile.gettempdir()), Path.cwd()}
