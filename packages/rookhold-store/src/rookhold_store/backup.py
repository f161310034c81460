"""A copy of the whole database at one moment, made while others write, and then checked."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import apsw
from msgspec import Struct

from rookhold_store import log_origin, schema
from rookhold_store.connection import ENGINE_ERRORS, as_ours
from rookhold_store.errors import (
    BackupTargetError,
    BackupUnsoundError,
    StorageFullError,
    StorageUnavailableError,
)
from rookhold_store.files import SIDE_SUFFIXES
from rookhold_store.source import Source
from rookhold_store.verify import integrity
from rookhold_store.verify.run import Progress, Verification

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rookhold_store.binding import BindingCheck
    from rookhold_store.moments import Short
    from rookhold_store.verify import Finding

STEP_PAGES: Final = 1024  # 4 MiB: often enough for a progress bar and for Ctrl-C
_NOREPLACE: Final = 1
_AT_FDCWD: Final = -100
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class BackedUp(Struct, frozen=True, kw_only=True):
    """What was copied; `jobs` is None for an older version, whose pages alone were checked."""

    path: str
    bytes: int
    version: int
    jobs: int | None


def backup(
    database: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    binding: BindingCheck | None = None,
    progress: Callable[[Progress], object] | None = None,
) -> BackedUp:
    """Copy `database` to the new file `target`, 0600; its name appears once it is complete.

    The copy is of one moment: writers go on, and the log keeps what they write until it is done.
    Raises BackupTargetError, BackupUnsoundError with what was found in the copy, or another
    StoreError; then no file of this name exists.
    """
    wanted = Path(os.path.abspath(target))  # noqa: PTH100  # a link at the end is not to be followed
    _refuse_existing(wanted)
    with _partial(wanted) as (partial, descriptor), Source(database) as source:
        _copy(source, partial, progress)
        _renumber(descriptor)
        os.fsync(descriptor)
        made = _checked(partial, wanted, binding, progress)
        _publish(partial, wanted)
    return made


def _refuse_existing(wanted: Path) -> None:
    for name in (wanted, *(Path(f"{wanted}{suffix}") for suffix in SIDE_SUFFIXES)):
        if os.path.lexists(name):
            raise BackupTargetError("there is a file of this name already", file=name.name)


@contextmanager
def _partial(wanted: Path) -> Iterator[tuple[Path, int]]:
    """Lend the file that grows beside the target; what a killed backup left is used again."""
    partial = wanted.with_name(f".{wanted.name}.partial")
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(partial, flags, 0o600)
    except OSError as exc:
        raise BackupTargetError("the file cannot be made there", errno=exc.errno or 0) from exc
    try:
        _claim(descriptor)
        try:
            yield partial, descriptor
        finally:
            with suppress(FileNotFoundError):
                partial.unlink()
    except OSError as exc:
        if exc.errno in _NO_SPACE:
            raise StorageFullError("the file system of the backup is full") from exc
        raise StorageUnavailableError("the backup cannot be written", errno=exc.errno or 0) from exc
    finally:
        os.close(descriptor)


def _claim(descriptor: int) -> None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
        raise BackupTargetError("what an earlier backup left there is not our regular file")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BackupTargetError("another backup to this file is under way") from None
    os.fchmod(descriptor, 0o600)
    os.ftruncate(descriptor, 0)


def _copy(source: Source, partial: Path, progress: Callable[[Progress], object] | None) -> None:
    try:
        source.at_a_moment(lambda moment: _copy_moment(moment, partial, progress))
    except apsw.FullError as exc:
        raise StorageFullError("the file system of the backup is full") from exc
    except ENGINE_ERRORS as exc:
        raise as_ours(exc) from exc


def _copy_moment(
    moment: Short, partial: Path, progress: Callable[[Progress], object] | None
) -> None:
    moment.db.pragma("user_version")  # the moment begins with the first look
    with suppress(FileNotFoundError):
        os.truncate(partial, 0)
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
    copy = apsw.Connection(str(partial), flags=flags)
    try:
        # Nobody else sees the file, and a killed copy is thrown away: no journal is of use.
        copy.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        with copy.backup("main", moment.db, "main") as steps:
            while not steps.done:
                steps.step(STEP_PAGES)
                if progress is not None:
                    total = steps.page_count
                    progress(Progress(total - steps.remaining, total, "copying"))
    finally:
        copy.close()


def _renumber(descriptor: int) -> None:
    """Make the copy another file than the original, whose log is not to be laid over it."""
    os.pwrite(descriptor, log_origin.new_number().to_bytes(4, "big"), log_origin.NUMBER_AT)


def _checked(
    partial: Path,
    wanted: Path,
    binding: BindingCheck | None,
    progress: Callable[[Progress], object] | None,
) -> BackedUp:
    found: list[Finding] = []
    jobs: int | None = None
    with Source(partial) as copy:
        version = schema.user_version(copy.db)
        if version == schema.SCHEMA_VERSION:
            run = Verification(copy, binding=binding, progress=progress)
            found.extend(run.findings())
            jobs = run.jobs
        else:
            found.extend(integrity.complete(copy.db))
    if found:
        raise BackupUnsoundError("the copy does not verify, and so neither does the file", found)
    size = partial.stat().st_size
    return BackedUp(path=str(wanted), bytes=size, version=version, jobs=jobs)


def _publish(partial: Path, wanted: Path) -> None:
    """Give the file its name, unless somebody else has taken it, and make the name durable."""
    try:
        if not _rename_to_nothing(partial, wanted):
            os.link(partial, wanted)
            partial.unlink()
    except FileExistsError:
        raise BackupTargetError("there is a file of this name already", file=wanted.name) from None
    directory = os.open(wanted.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _rename_to_nothing(old: Path, new: Path) -> bool:
    """Rename unless `new` exists, in one step; False where system or file system cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(old), _AT_FDCWD, os.fsencode(new), _NOREPLACE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number))
