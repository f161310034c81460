"""Key files on disk: who may own and write them, and every directory on the way to them.

Somebody who can replace a directory above a key can replace the key, so each parent is held to the
same owners, as the path is written and again with symbolic links resolved. Where the platform has
no POSIX owners and modes, only the check for symbolic links remains.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from . import profile
from .errors import (
    AttestationError,
    FileIoError,
    InvalidKeyEncodingError,
    KeyFileAlreadyExistsError,
    KeyFileTooLargeError,
    UnsafeKeyFileOwnerError,
    UnsafeKeyFilePermissionsError,
    UnsafeKeyFileTypeError,
)

Kind = Literal["private", "public"]

_POSIX: Final = hasattr(os, "geteuid")
_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_BLOCK: Final = getattr(os, "O_NONBLOCK", 0)  # a FIFO must not make the open wait
_MODE: Final[dict[Kind, int]] = {"private": 0o600, "public": 0o644}
_FORBIDDEN_BITS: Final[dict[Kind, int]] = {"private": 0o7177, "public": 0o7133}
_WRITABLE_BY_OTHERS: Final = 0o022


def read_key_text(path: str | Path, kind: Kind) -> str:
    """Return the text of a key file that only root or this user could have written."""
    place = _safe_place(Path(path), kind)
    try:
        descriptor = os.open(place, os.O_RDONLY | _NO_FOLLOW | _NO_BLOCK)
    except (OSError, ValueError) as exc:
        raise UnsafeKeyFileTypeError(kind=kind) if _is_link(place) else _io(kind, exc) from None
    try:
        _check_file(os.fstat(descriptor), kind)
        data = _read_bounded(descriptor, kind)
    finally:
        os.close(descriptor)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidKeyEncodingError(kind=kind, format="UTF-8 text") from None


def write_new_key_file(path: str | Path, kind: Kind, text: str) -> None:
    """Create the file with its exact mode, whatever the umask, and make it durable."""
    place = _safe_place(Path(path), kind)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW
    try:
        descriptor = os.open(place, flags, _MODE[kind])
    except FileExistsError:
        raise KeyFileAlreadyExistsError from None
    except (OSError, ValueError) as exc:
        raise _io(kind, exc) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            if _POSIX:
                os.fchmod(file.fileno(), _MODE[kind])
            file.write(text.encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
    except OSError as exc:
        place.unlink(missing_ok=True)  # ours: the exclusive create above made it
        raise _io(kind, exc) from None


def _check_file(found: os.stat_result, kind: Kind) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UnsafeKeyFileTypeError(kind=kind)
    if found.st_size > profile.KEY_FILE_BYTES_MAX:
        raise KeyFileTooLargeError(kind=kind, max_bytes=profile.KEY_FILE_BYTES_MAX)
    if _POSIX:
        if not _trusted_owner(found):
            raise UnsafeKeyFileOwnerError(kind=kind)
        if found.st_mode & _FORBIDDEN_BITS[kind]:
            raise UnsafeKeyFilePermissionsError(kind=kind)


def _read_bounded(descriptor: int, kind: Kind) -> bytes:
    """Read to the end; the file may have grown since its size was checked."""
    data = b""
    try:
        while chunk := os.read(descriptor, profile.KEY_FILE_BYTES_MAX + 1 - len(data)):
            data += chunk
            if len(data) > profile.KEY_FILE_BYTES_MAX:
                raise KeyFileTooLargeError(kind=kind, max_bytes=profile.KEY_FILE_BYTES_MAX)
    except OSError as exc:
        raise _io(kind, exc) from None
    return data


def _safe_place(path: Path, kind: Kind) -> Path:
    """Return the path through its resolved parent, after checking every directory on the way."""
    if not path.name or ".." in path.parts:
        raise UnsafeKeyFileTypeError(kind=kind)
    try:
        if not _POSIX:
            if path.is_symlink():
                raise UnsafeKeyFileTypeError(kind=kind)
            return path
        written = Path.cwd() / path.parent
        _check_parents(written, kind, links_allowed=True)
        # Opening through the resolved parent: a link exchanged later no longer matters.
        resolved = written.resolve(strict=True)
        _check_parents(resolved, kind, links_allowed=False)
    except (OSError, RuntimeError, ValueError) as exc:
        raise _io(kind, exc) from None
    return resolved / path.name


def _is_link(place: Path) -> bool:
    try:
        return place.is_symlink()
    except OSError:  # such as a name that is too long; the failed open has said it already
        return False


def _check_parents(parent: Path, kind: Kind, *, links_allowed: bool) -> None:
    for directory in _from_root(parent):
        found = directory.lstat()
        if stat.S_ISLNK(found.st_mode) and links_allowed:
            if found.st_uid != 0:
                raise UnsafeKeyFileOwnerError(kind=kind)
            continue  # what it leads to is checked when the path is walked resolved
        if not stat.S_ISDIR(found.st_mode):
            raise UnsafeKeyFileTypeError(kind=kind)
        if not _trusted_owner(found):
            raise UnsafeKeyFileOwnerError(kind=kind)
        sticky_of_root = found.st_uid == 0 and bool(found.st_mode & stat.S_ISVTX)
        if found.st_mode & _WRITABLE_BY_OTHERS and not sticky_of_root:
            raise UnsafeKeyFilePermissionsError(kind=kind)


def _from_root(directory: Path) -> Iterator[Path]:
    yield from reversed(directory.parents)
    yield directory


def _trusted_owner(found: os.stat_result) -> bool:
    return found.st_uid in (0, os.geteuid())


def _io(kind: Kind, exc: Exception) -> AttestationError:
    return FileIoError.of(f"{kind} key file", exc)
