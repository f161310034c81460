"""Where the database may lie: no links, no foreign hands, and nobody else may read it."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path
from typing import Final

from rookhold_store.errors import (
    ForeignSchemaError,
    StorageFullError,
    StorageUnavailableError,
    StoreError,
    UnsafeDatabasePathError,
)

SIDE_SUFFIXES: Final = ("-wal", "-shm", "-journal")

# Directories of the system itself. Its temporary directories are not here: they are root's and
# sticky, so that nobody else can replace a file of ours in them.
_SYSTEM_DIRECTORIES: Final = frozenset(
    f"/{name}"
    for names in (
        " bin boot dev etc home lib lib32 lib64 media mnt opt proc run sbin srv sys usr var",
        "usr/bin usr/lib usr/lib64 usr/libexec usr/local usr/local/bin usr/local/lib",
        "usr/local/share usr/sbin usr/share var/cache var/lib var/log var/run var/spool",
        "Applications Library System Users Volumes private private/etc private/var",
    )
    for name in names.split(" ")
)
# The links that macOS itself keeps at the root; what they point to is then checked like any other.
_MACOS_ALIASES: Final = {"etc": "private/etc", "tmp": "private/tmp", "var": "private/var"}


def secure_database(path: str | os.PathLike[str]) -> Path:
    """Make or check the database file and everything above it; return its absolute path.

    A missing parent is made 0700; one that exists is only judged. The file is made empty, 0600; an
    existing one that is ours is narrowed to 0600, as are its side files.
    """
    wanted = _absolute(path)
    _secure_parent(wanted.parent)
    secure_side_files(wanted)
    _refuse_remains(wanted)
    if not _made(wanted):
        size = _narrow_existing(wanted)
        if size == 1:  # SQLite would take it for an empty file and write over it
            raise ForeignSchemaError("the file is not a database")
        if size and wanted.parent.lstat().st_mode & stat.S_IWOTH:
            _take_side_names(wanted)
    return wanted


def _made(path: Path) -> bool:
    """Make an empty file, 0600, or judge the one that is there; whether it was made."""
    try:
        # Exclusive, so that what is created is never what somebody else put there.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        _narrow_existing(path)
        return False
    except OSError as exc:
        raise _not_made("a database file cannot be made", exc) from exc
    try:
        os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    return True


def _narrow_existing(path: Path) -> int:
    """Judge a file that was there a moment ago, and return its size."""
    try:
        narrow(path)
        return path.lstat().st_size
    except FileNotFoundError:
        raise UnsafeDatabasePathError(
            "a database file was removed while it was examined", file=path.name
        ) from None


def _take_side_names(path: Path) -> None:
    """Have every name beside the database, where everybody may make a file whose name is free.

    SQLite would use a file that somebody makes there before it does, and as root it would even give
    that file to the owner of the database, so that nothing is to be seen of it afterwards.
    """
    for suffix in SIDE_SUFFIXES:
        _made(path.with_name(path.name + suffix))


def secure_side_files(path: Path) -> None:
    """Check the files that SQLite keeps beside the database, as far as they exist."""
    for suffix in SIDE_SUFFIXES:
        with contextlib.suppress(FileNotFoundError):
            narrow(path.with_name(path.name + suffix))


def _refuse_remains(path: Path) -> None:
    """Refuse to make a database beside the log of one that is gone: SQLite would delete the log.

    Looked at before the database is made, since another opener makes that first and its log later.
    """
    for suffix in ("-wal", "-journal"):
        remains = path.with_name(path.name + suffix)
        with contextlib.suppress(FileNotFoundError):
            if remains.lstat().st_size and not os.path.lexists(path):
                raise UnsafeDatabasePathError(
                    f"{remains.name} lies here without its database: put that back, or move "
                    "the log away if nothing of it is wanted",
                    file=remains.name,
                )


def narrow(path: Path) -> None:
    """Check that `path` is our regular file with one name, and make it 0600.

    By name and without opening it: to close a descriptor of a file drops every POSIX lock that this
    process holds on it, SQLite's too. The directory was judged, so nobody else can swap the file.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise UnsafeDatabasePathError("a database file cannot be examined", file=path.name) from exc
    if stat.S_ISLNK(found.st_mode):
        raise UnsafeDatabasePathError("a database file is a link", file=path.name)
    if not stat.S_ISREG(found.st_mode):
        raise UnsafeDatabasePathError("a database file is not a regular file", file=path.name)
    if found.st_nlink != 1:
        raise UnsafeDatabasePathError("a database file has another name", file=path.name)
    if found.st_uid not in (0, os.geteuid()):
        raise UnsafeDatabasePathError("a database file belongs to another user", file=path.name)
    if stat.S_IMODE(found.st_mode) != 0o600:
        try:
            path.chmod(0o600)
        except OSError as exc:
            raise UnsafeDatabasePathError(
                "a database file cannot be made private", file=path.name
            ) from exc


def _absolute(path: str | os.PathLike[str]) -> Path:
    absolute = Path(os.path.abspath(path))  # noqa: PTH100  # resolve() would follow the links we refuse
    try:
        nameable = b"\0" not in str(absolute).encode()
    except UnicodeEncodeError:  # bytes that are not UTF-8: SQLite takes no such name
        nameable = False
    if not nameable:
        raise UnsafeDatabasePathError("the database path is not a UTF-8 text without NUL")
    if absolute.name == "":
        raise UnsafeDatabasePathError("the database path names no file")
    if sys.platform == "darwin":
        first = absolute.parts[1]
        if first in _MACOS_ALIASES and Path("/", first).is_symlink():
            absolute = Path("/", _MACOS_ALIASES[first], *absolute.parts[2:])
    return absolute


def _secure_parent(parent: Path) -> None:
    missing: list[Path] = []
    for component in (*reversed(parent.parents), parent):
        if missing:
            missing.append(component)
            continue
        try:
            found = component.lstat()
        except FileNotFoundError:
            missing.append(component)
            continue
        except OSError as exc:
            raise UnsafeDatabasePathError("a directory cannot be examined") from exc
        if stat.S_ISLNK(found.st_mode):
            raise UnsafeDatabasePathError("a directory above the database is a link")
        if not stat.S_ISDIR(found.st_mode):
            raise UnsafeDatabasePathError("a directory above the database is not a directory")
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            raise UnsafeDatabasePathError("anybody may replace a directory above the database")
    for component in missing:
        _make_private(component)
    _judge(parent)


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700)
        if stat.S_IMODE(directory.lstat().st_mode) != 0o700:  # a umask that takes our own bits
            directory.chmod(0o700)
    except FileExistsError:
        return  # made by somebody meanwhile: judged like any that was found
    except OSError as exc:
        raise _not_made("a directory cannot be made", exc) from exc


def _not_made(text: str, exc: OSError) -> StoreError:
    """Tell a disk that takes nothing from a place that may not be used."""
    number = exc.errno or 0
    if number in (errno.ENOSPC, errno.EDQUOT):
        return StorageFullError(f"{text}: the file system is full", errno=number)
    if number in (errno.EROFS, errno.EIO):
        return StorageUnavailableError(f"{text}: the file system takes no writes", errno=number)
    return UnsafeDatabasePathError(text, errno=number)


def _judge(parent: Path) -> None:
    found = parent.lstat()
    mode = found.st_mode
    if not stat.S_ISDIR(mode):
        raise UnsafeDatabasePathError("the database's directory is not a directory")
    if str(parent) in _SYSTEM_DIRECTORIES:
        raise UnsafeDatabasePathError("the database's directory is one of the system's")
    if found.st_uid not in (0, os.geteuid()):
        raise UnsafeDatabasePathError("the database's directory belongs to another user")
    sticky = found.st_uid == 0 and mode & stat.S_ISVTX
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
        raise UnsafeDatabasePathError("others may write to the database's directory")
