"""Files that hold secrets: which ones may be read, and how little is said of one that may not."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not wait


class SecretFileError(Exception):
    """Carries the rule that was broken, neither path nor content."""


class UnreadableSecretFileError(SecretFileError):
    """It is not there, or not to be read by this account, or too large."""


class UnsafeSecretFileError(SecretFileError):
    """Somebody else may read it or put another in its place."""


class Stamp(NamedTuple):
    """Changes whenever the file is written or another takes its place."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


def stamp_of(path: Path) -> Stamp | None:
    """Return what the file looks like now, None if there is none that can be seen."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return _stamp(found)


def read_secret_file(
    path: Path, *, bytes_max: int, strict: bool, public: bool = False
) -> tuple[bytes, Stamp]:
    """Return the content and the stamp it had before it was read.

    A regular file, and never by way of a link in its own place. `strict` (production) wants an
    absolute path of real directories that only root or this account may change, and a file that
    nobody else may read; one that is `public` others may read, but not write. Raises a
    SecretFileError.
    """
    if strict:
        _check_way(path, os.geteuid())
    try:
        descriptor = os.open(path, _FLAGS)
    except (OSError, ValueError):
        if _is_link(path):
            raise UnsafeSecretFileError("must not be a symbolic link") from None
        raise UnreadableSecretFileError("cannot be read") from None
    try:
        found = os.fstat(descriptor)
        _check_file(found, os.geteuid() if strict else None, public=public)
        data = _read(descriptor, bytes_max)
    except OSError:
        raise UnreadableSecretFileError("cannot be read") from None
    finally:
        os.close(descriptor)
    return data, _stamp(found)


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _is_link(path: Path) -> bool:
    try:
        return path.is_symlink()
    except (OSError, ValueError):
        return False


def check_for(path: Path, uid: int) -> None:
    """Judge a file as a server in production judges it that runs as the account `uid`."""
    _check_way(path, uid)
    try:
        found = path.lstat()
    except (OSError, ValueError):
        raise UnreadableSecretFileError("cannot be read") from None
    _check_file(found, uid)
    if found.st_uid != uid and uid != 0:
        raise UnreadableSecretFileError("cannot be read by the account of the server")


def _check_file(found: os.stat_result, uid: int | None, *, public: bool = False) -> None:
    """With a `uid` also judge who may read it."""
    if not stat.S_ISREG(found.st_mode):
        raise UnsafeSecretFileError("must be a regular file")
    if uid is None:
        return
    if found.st_uid not in {0, uid}:
        raise UnsafeSecretFileError("must belong to root or to the account of the server")
    if public and found.st_mode & 0o022:
        raise UnsafeSecretFileError("must not be writable for group and others")
    if not public and found.st_mode & 0o077:
        raise UnsafeSecretFileError("must be closed to group and others (mode 0600)")


def _check_way(path: Path, uid: int) -> None:
    """Judge every directory above: whoever may change one could put another file in the place."""
    if not path.is_absolute() or ".." in path.parts:
        raise UnsafeSecretFileError("must be an absolute path without ..")
    for directory in reversed(path.parents):
        try:
            found = directory.lstat()
        except (OSError, ValueError):
            raise UnreadableSecretFileError("cannot be read") from None
        if not stat.S_ISDIR(found.st_mode):
            raise UnsafeSecretFileError("must have nothing but real directories above it")
        if found.st_uid not in {0, uid}:
            raise UnsafeSecretFileError("is below a directory of another account")
        if found.st_mode & 0o022:
            raise UnsafeSecretFileError("is below a directory that group or others may write to")


def _read(descriptor: int, bytes_max: int) -> bytes:
    """Read to the end; the file may have grown since its size was looked at."""
    data = b""
    while piece := os.read(descriptor, bytes_max + 1 - len(data)):
        data += piece
        if len(data) > bytes_max:
            raise UnreadableSecretFileError(f"is larger than {bytes_max} bytes")
    return data
