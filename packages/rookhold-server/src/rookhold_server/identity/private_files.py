"""Writing a file that holds secrets: as a whole or not at all, one writer at a time, mode 0600."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from rookhold_server.errors import CredentialsBusyError, UnusableCredentialsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_LOCK_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN: Final = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MODE: Final = 0o600


class Owner(NamedTuple):
    """Who a file that is made new belongs to."""

    uid: int
    gid: int


def write_anew(file: Path, data: bytes, *, owner: Owner | None) -> None:
    """Put it in the place of what is there, which keeps its owner; durable on return."""
    _put(file, data, owner, _place)


def write_first(file: Path, data: bytes, *, owner: Owner | None) -> None:
    """Put it where nothing is; refuses to replace a file that somebody made meanwhile."""
    _put(file, data, owner, _place_new)


@contextlib.contextmanager
def locked(file: Path, *, owner: Owner | None) -> Iterator[None]:
    """Keep other writers from `file`. The lock is a file beside it that stays for the next time.

    Raises CredentialsBusyError after a while, UnusableCredentialsError where there can be none.
    """
    with _folder(file) as folder:
        descriptor = _open_lock(f".{file.name}.lock", folder, _owner_of(file.name, folder, owner))
        try:
            _wait_for(descriptor)
            yield
        finally:
            os.close(descriptor)


def _put(
    file: Path, data: bytes, owner: Owner | None, into: Callable[[int, str, str], None]
) -> None:
    with _folder(file) as folder:
        owner = _owner_of(file.name, folder, owner)
        name = f".{file.name}.{secrets.token_hex(8)}"
        descriptor = os.open(name, _CREATE, _MODE, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as new:
                _give(new.fileno(), owner)
                os.fchmod(new.fileno(), _MODE)
                new.write(data)
                new.flush()
                os.fsync(new.fileno())
            into(folder, name, file.name)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        os.fsync(folder)


def _place(folder: int, name: str, final: str) -> None:
    os.replace(name, final, src_dir_fd=folder, dst_dir_fd=folder)


def _place_new(folder: int, name: str, final: str) -> None:
    os.link(name, final, src_dir_fd=folder, dst_dir_fd=folder)


@contextlib.contextmanager
def _folder(file: Path) -> Iterator[int]:
    """Yield the directory's descriptor; what goes wrong with a file in it is told as ours."""
    try:
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield folder
        finally:
            os.close(folder)
    except OSError as exc:
        why = os.strerror(exc.errno or 0)  # the exception's own text repeats the path
        raise UnusableCredentialsError(f"the file cannot be used ({why})") from None


def _owner_of(name: str, folder: int, otherwise: Owner | None) -> Owner | None:
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return otherwise
    return Owner(found.st_uid, found.st_gid)


def _give(descriptor: int, owner: Owner | None) -> None:
    found = os.fstat(descriptor)
    if owner is not None and owner != (found.st_uid, found.st_gid):
        os.fchown(descriptor, *owner)


def _open_lock(name: str, folder: int, owner: Owner | None) -> int:
    try:
        descriptor = os.open(name, _CREATE, _MODE, dir_fd=folder)
    except FileExistsError:
        return os.open(name, _OPEN, dir_fd=folder)
    _give(descriptor, owner)
    return descriptor


def _wait_for(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise UnusableCredentialsError("the lock beside the credentials file is no regular file")
    end = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise CredentialsBusyError("somebody else is changing the file") from None
            time.sleep(_LOOK_SECONDS)
        else:
            return
