"""Whether the write-ahead log beside a database is that database's own.

SQLite does not ask: the log of another store, or one that outlived the file which a backup has
replaced, is laid over whatever bears its name. Two things tell. Every file has a number of its own
in its header, and a log holds that header anew whenever the file grows. And until a log holds it,
the file that it continues is as long as each of its commits says.
"""

from __future__ import annotations

import secrets
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import apsw

from rookhold_store.connection import as_ours, immediate
from rookhold_store.errors import StorageFullError, UnsafeDatabasePathError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NUMBER_AT: Final = 68  # in the header of a file; SQLite calls it the application id
_HEADER_BYTES: Final = 100
_LOG_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_ORDERS: Final = {0x377F0682: "<", 0x377F0683: ">"}  # of the words that are summed up
_MASK: Final = 0xFFFFFFFF
# Python sums a frame up in 0.1 ms. A log of ours holds the header within some tens of them.
_SUMMED_MAX: Final = 256


def new_number() -> int:
    """Return a number for a file that has none, or that begins a life of its own."""
    return secrets.randbelow(2**31 - 1) + 1


def give_number(db: apsw.Connection) -> None:
    """Give a database that has no number one; on a full disk it waits for the next open."""
    if db.pragma("application_id"):
        return
    try:
        with immediate(db):
            if not db.pragma("application_id"):
                db.pragma("application_id", new_number())
    except apsw.Error as exc:
        if not isinstance(as_ours(exc), StorageFullError):
            raise


def refuse_foreign(db: apsw.Connection) -> None:
    """Refuse a log that was written for another file; `db` has opened it and changed nothing.

    The write lock is held meanwhile, so that the log does not begin anew.
    """
    log_bytes = _size(db.filename_wal)
    if log_bytes <= _LOG_HEADER_BYTES:
        return
    own = True
    with suppress(apsw.Error), immediate(db):  # the judgement of the schema says it better
        file = _Header(_reader(db, 0)(_HEADER_BYTES, 0))
        log = _Log(_reader(db, 1), log_bytes)
        if file.sound and log.sound:
            own = log.continues(file, _size(db.filename) // log.page_bytes)
    if not own:
        name = Path(db.filename_wal).name
        raise UnsafeDatabasePathError(
            f"{name} is the log of another database: put back what belongs together, or move the "
            "log away if nothing of it is wanted",
            file=name,
        )


def _size(name: str) -> int:
    try:
        return Path(name).stat().st_size
    except OSError:
        return 0


def _reader(db: apsw.Connection, which: int) -> Callable[[int, int], bytes]:
    """Read the file itself, or its log: through SQLite, whose locks a descriptor would drop."""
    return lambda amount, offset: db.read("main", which, offset, amount)[1]


class _Header(NamedTuple):
    """The first bytes of a database."""

    raw: bytes

    @property
    def sound(self) -> bool:
        """Whether the length in it is kept up; SQLite asks the same."""
        return self.raw.startswith(b"SQLite format 3\0") and self.raw[24:28] == self.raw[92:96]

    @property
    def pages(self) -> int:
        return int.from_bytes(self.raw[28:32], "big")

    @property
    def number(self) -> int:
        return int.from_bytes(self.raw[NUMBER_AT : NUMBER_AT + 4], "big")


class _Frame(NamedTuple):
    """One page of a log; only the first ones are summed up, of the rest it is the salt alone."""

    pages: int  # the length of the file, where a commit ends
    header: _Header | None  # where the page is the first
    summed: bool


class _Log:
    """A log as SQLite would read it."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        header = read(_LOG_HEADER_BYTES, 0)
        magic, _, self.page_bytes = struct.unpack(">III", header[:12])
        self._salt = header[16:24]
        self._order = _ORDERS.get(magic, ">")
        self._sums = self._summed((0, 0), header[:24])
        self.sound = (
            magic in _ORDERS
            and self.page_bytes > 0
            and struct.unpack(">II", header[24:]) == self._sums
        )

    def continues(self, file: _Header, length: int) -> bool:
        """Whether it may be the log of a file with this header and so many pages."""
        header_seen = False
        fits: bool | None = None  # the length, once the first commit is known
        for frame in self._frames():
            if frame.header is not None:
                if frame.header == file:  # and was moved there already
                    return True
                if frame.summed and file.number and frame.header.number not in (0, file.number):
                    return False
                header_seen = True
            if fits is None and frame.pages and frame.summed:
                fits = header_seen or frame.pages in (file.pages, length)
            if fits is not False and (header_seen or not frame.summed):
                return True
        return fits is not False

    def _frames(self) -> Iterator[_Frame]:
        step = _FRAME_HEADER_BYTES + self.page_bytes
        offsets = range(_LOG_HEADER_BYTES, self._size - step + 1, step)
        for at, offset in enumerate(offsets):
            summed = at < _SUMMED_MAX
            raw = self._read(step if summed else _FRAME_HEADER_BYTES, offset)
            if raw[8:16] != self._salt:
                return
            if summed:
                self._sums = self._summed(self._sums, raw[:8])
                self._sums = self._summed(self._sums, raw[_FRAME_HEADER_BYTES:])
                if struct.unpack(">II", raw[16:24]) != self._sums:
                    return
            page, pages = struct.unpack(">II", raw[:8])
            header = None
            if page == 1:
                start = offset + _FRAME_HEADER_BYTES
                header = _Header(self._read(_HEADER_BYTES, start))
            yield _Frame(pages, header, summed)

    def _summed(self, sums: tuple[int, int], text: bytes) -> tuple[int, int]:
        """Add a text to SQLite's two sums of what came before it."""
        first, second = sums
        words = iter(struct.unpack(f"{self._order}{len(text) // 4}I", text))
        for even, odd in zip(words, words, strict=True):
            first = (first + even + second) & _MASK
            second = (second + odd + first) & _MASK
        return first, second
