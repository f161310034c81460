"""A disk that fails when it is told to, below every connection of this process; for tests.

SQLite's own layer for files is wrapped where its errors arise, so that SQLite meets what a real
disk would make it meet, and nobody above has to know.
"""

from __future__ import annotations

import ctypes
import errno
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import apsw
from faults.platter import PAGE, Platter

if TYPE_CHECKING:
    import random
    from pathlib import Path
    from types import TracebackType
    from typing import Self

SIDES: Final = {"": "db", "-wal": "wal", "-journal": "journal"}


class How(StrEnum):
    """What happens instead of, or before, what was asked for."""

    EIO = "eio"
    ENOSPC = "enospc"  # only where space is asked for; otherwise nothing happens
    EDQUOT = "edquot"  # a write would go beyond the quota of the file system
    SHORT = "short"  # half of a write, then no space
    SLOW = "slow"
    LOST = "lost"  # a sync fails, and what it was for is forgotten by the next one


class Call(NamedTuple):
    """One call of SQLite to its files; `number` counts from 1, over all files and connections."""

    number: int
    kind: str  # open, read, write, truncate, sync, size, shm or delete
    file: str  # db, wal or journal; the shared memory counts as the database's


Rule = Callable[[Call], How | None]

_EIO: Final = {
    "open": apsw.SQLITE_CANTOPEN,
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "size": apsw.SQLITE_IOERR_FSTAT,
    "shm": apsw.SQLITE_IOERR_SHMMAP,
    "delete": apsw.SQLITE_IOERR_DELETE,
}
_ENOSPC: Final = {
    "open": apsw.SQLITE_CANTOPEN,
    "write": apsw.SQLITE_FULL,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "shm": apsw.SQLITE_IOERR_SHMSIZE,
}

_P: Final = ctypes.c_void_p
_I: Final = ctypes.c_int
_L: Final = ctypes.c_longlong
_OPEN: Final = ctypes.CFUNCTYPE(_I, _P, _P, _P, _I, _P)
_DELETE: Final = ctypes.CFUNCTYPE(_I, _P, ctypes.c_char_p, _I)
_READ: Final = ctypes.CFUNCTYPE(_I, _P, _P, _I, _L)
_WRITE: Final = ctypes.CFUNCTYPE(_I, _P, _P, _I, _L, use_errno=True)
_TRUNCATE: Final = ctypes.CFUNCTYPE(_I, _P, _L)
_SYNC: Final = ctypes.CFUNCTYPE(_I, _P, _I)
_SIZE: Final = ctypes.CFUNCTYPE(_I, _P, ctypes.POINTER(_L))
_SHM_MAP: Final = ctypes.CFUNCTYPE(_I, _P, _I, _I, _I, _P)


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`, version 3."""

    _fields_ = (
        ("version", _I),
        *((name, _P) for name in ("close", "read", "write", "truncate", "sync", "size")),
        *((name, _P) for name in ("lock", "unlock", "check_lock", "control", "sector", "device")),
        *((name, _P) for name in ("shm", "shm_lock", "shm_barrier", "shm_unmap")),
        *((name, _P) for name in ("fetch", "unfetch")),
    )


class _Vfs(ctypes.Structure):
    """The beginning of `sqlite3_vfs`."""

    _fields_ = (
        *((name, _I) for name in ("version", "size", "longest_path")),
        *((name, _P) for name in ("next", "name", "data", "open", "delete")),
    )


class FaultyDisk:
    """While it is entered, calls for the files of `path` go by `rule`; one at a time in a process.

    Connections that were open before are not affected; for those opened meanwhile nothing fails and
    nothing is noted once the block is left.
    """

    def __init__(self, path: Path, *, slow_seconds: float = 0.001) -> None:
        self.path = path
        self.rule: Rule | None = None
        self.slow_seconds = slow_seconds
        self.calls: list[Call] = []
        self.failed: list[tuple[Call, How]] = []
        self.platters: dict[str, Platter] = {side: Platter() for side in SIDES}
        self._accidents: list[BaseException] = []
        self._lock = threading.RLock()
        self._over = False
        self._kept: list[Any] = []  # what SQLite holds pointers to
        self._tables: dict[tuple[int, str], _Methods] = {}

    # What tests say.

    def fail_at(self, number: int, how: How, *, on: bool = False) -> None:
        """Let the call with this number from now on fail, and with `on` each after it as well."""
        first = len(self.calls) + number
        self.rule = lambda call: (
            how if call.number == first or (on and call.number > first) else None
        )

    def fail(self, how: How, *kinds: str, file: str | None = None) -> None:
        """Let every call of these kinds fail."""
        self.rule = lambda call: how if call.kind in kinds and file in (None, call.file) else None

    def heal(self) -> None:
        self.rule = None

    def counts(self) -> Counter[tuple[str, str]]:
        return Counter((call.kind, call.file) for call in self.calls)

    def after_kill(self, target: Path) -> None:
        """Copy what a killed process leaves, and go on there: all that was written."""
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock:
            for side in SIDES:
                with suppress(FileNotFoundError):
                    shutil.copyfile(_beside(self.path, side), _beside(target, side))
            self.path = target

    def after_power_cut(self, target: Path, dice: random.Random) -> None:
        """Make what a lost supply leaves: all that was synced, and some of the rest."""
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock:
            for side, platter in self.platters.items():
                source = _beside(self.path, side)
                if not source.exists():
                    continue
                cached = source.read_bytes()
                for page in sorted(platter.dirty):
                    if dice.random() < 0.5:  # as likely as not
                        data = cached[page * PAGE : (page + 1) * PAGE]
                        platter.pages[page] = data
                        platter.size = max(platter.size, page * PAGE + len(data))
                platter.dirty.clear()
                if platter.size or side == "":
                    _beside(target, side).write_bytes(platter.content())
            self.path = target

    # What SQLite is given.

    def __enter__(self) -> Self:
        pointer = _P()
        db = apsw.Connection(":memory:")
        db.file_control("main", apsw.SQLITE_FCNTL_VFS_POINTER, ctypes.addressof(pointer))
        db.close()
        self._vfs = _Vfs.from_address(pointer.value or 0)
        self._before = (self._vfs.open, self._vfs.delete)
        really_open, really_delete = _OPEN(self._before[0]), _DELETE(self._before[1])
        opening = _OPEN(partial(self._guarded, partial(self._open, really_open)))
        deleting = _DELETE(partial(self._guarded, partial(self._delete, really_delete)))
        self._kept += [opening, deleting]
        self._vfs.open = ctypes.cast(opening, _P).value
        self._vfs.delete = ctypes.cast(deleting, _P).value
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._vfs.open, self._vfs.delete = self._before
        self.heal()
        self._over = True
        self.platters = {side: Platter() for side in SIDES}
        _IMMORTAL.append(self._kept)  # a connection may outlive this block
        if self._accidents:
            raise self._accidents[0]

    def _side(self, name: bytes | None) -> str | None:
        if name is None:
            return None
        for side in SIDES:
            if name == str(_beside(self.path, side)).encode():
                return side
        return None

    def _asked(self, kind: str, side: str) -> How | None:
        if self._over:
            return None
        with self._lock:
            call = Call(len(self.calls) + 1, kind, SIDES[side])
            self.calls.append(call)
            how = None if self.rule is None else self.rule(call)
            if how is not None:
                self.failed.append((call, how))
        if how is How.SLOW:
            time.sleep(self.slow_seconds)
            return None
        return how

    def _refusal(self, kind: str, how: How | None) -> int | None:
        match how:
            case How.EIO:
                return _EIO[kind]
            case How.ENOSPC:
                return _ENOSPC.get(kind)
            case How.LOST if kind == "sync":
                return _EIO[kind]
            case How.EDQUOT if kind == "write":
                ctypes.set_errno(errno.EDQUOT)  # what SQLite then finds as the system's word
                return _EIO[kind]
            case _:
                return None

    def _guarded(self, work: Callable[..., int], *args: Any) -> int:
        try:
            return work(*args)
        except BaseException as error:  # noqa: BLE001  # C would read it as success
            self._accidents.append(error)
            return apsw.SQLITE_INTERNAL

    def _delete(self, really: Any, vfs: int, name: bytes, sync: int) -> int:
        if (side := self._side(name)) is not None:
            if (code := self._refusal("delete", self._asked("delete", side))) is not None:
                return code
            with self._lock:
                self.platters[side] = Platter()
        return int(really(vfs, name, sync))

    def _open(self, really: Any, vfs: int, name: int | None, file: int, *rest: Any) -> int:
        side = None if name is None else self._side(ctypes.string_at(name))
        if side is None:
            return int(really(vfs, name, file, *rest))
        methods = _P.from_address(file)
        if (code := self._refusal("open", self._asked("open", side))) is not None:
            methods.value = None  # as one that never was opened
            return code
        code = int(really(vfs, name, file, *rest))
        if code == apsw.SQLITE_OK and methods.value:
            methods.value = ctypes.addressof(self._table(methods.value, side))
        return code

    def _table(self, address: int, side: str) -> _Methods:
        """Return the methods of a file of this kind, with ours in place of some."""
        with self._lock:
            if (address, side) not in self._tables:
                table = _Methods.from_buffer_copy(_Methods.from_address(address))
                self._wrap(table, side)
                self._tables[address, side] = table
                self._kept.append(table)
            return self._tables[address, side]

    def _wrap(self, table: _Methods, side: str) -> None:
        read, write, truncate = _READ(table.read), _READ(table.write), _TRUNCATE(table.truncate)
        sync, size, shm = _SYNC(table.sync), _SIZE(table.size), _SHM_MAP(table.shm or 0)

        def length(file: int) -> int:
            value = _L()
            size(file, ctypes.byref(value))
            return value.value

        ours: dict[str, tuple[Any, Callable[..., int]]] = {
            "read": (_READ, partial(self._plain, "read", side, read)),
            "size": (_SIZE, partial(self._plain, "size", side, size)),
            "shm": (_SHM_MAP, partial(self._plain, "shm", side, shm)),
            "write": (_WRITE, partial(self._write, side, write)),
            "truncate": (_TRUNCATE, partial(self._truncate, side, truncate)),
            "sync": (_SYNC, partial(self._sync, side, sync, read, length)),
        }
        for name, (prototype, function) in ours.items():
            if getattr(table, name):
                callback = prototype(partial(self._guarded, function))
                self._kept.append(callback)
                setattr(table, name, ctypes.cast(callback, _P).value)

    def _plain(self, kind: str, side: str, really: Any, *args: Any) -> int:
        code = self._refusal(kind, self._asked(kind, side))
        return int(really(*args)) if code is None else code

    def _write(self, side: str, really: Any, file: int, data: int, count: int, at: int) -> int:
        how = self._asked("write", side)
        if how is How.SHORT:
            count //= 2
        elif (code := self._refusal("write", how)) is not None:
            return code
        if count:
            if (code := int(really(file, data, count, at))) != apsw.SQLITE_OK:
                return code
            with self._lock:
                if not self._over:
                    self.platters[side].wrote(at, count)
        return apsw.SQLITE_FULL if how is How.SHORT else apsw.SQLITE_OK

    def _truncate(self, side: str, really: Any, file: int, length: int) -> int:
        code = self._refusal("truncate", self._asked("truncate", side))
        if code is None and (code := int(really(file, length))) == apsw.SQLITE_OK:
            with self._lock:
                self.platters[side].truncated(length)
        return code

    def _sync(
        self, side: str, really: Any, read: Any, length: Callable[[int], int], file: int, how: int
    ) -> int:
        failure = self._asked("sync", side)
        code = self._refusal("sync", failure)
        with self._lock:
            platter = self.platters[side]
            if code is None and (code := int(really(file, how))) == apsw.SQLITE_OK:
                platter.synced(partial(_page, read, file), length(file))
            elif failure is How.LOST:
                platter.dirty.clear()
        return code


_IMMORTAL: Final[list[Any]] = []


def _beside(path: Path, side: str) -> Path:
    return path.with_name(path.name + side)


def _page(read: Any, file: int, page: int) -> bytes:
    buffer = ctypes.create_string_buffer(PAGE)
    read(file, ctypes.addressof(buffer), PAGE, page * PAGE)  # zeros beyond the end
    return buffer.raw
