"""What the writer does for the file between operations: the log stays short, free pages go back."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import apsw
from msgspec import Struct

from rookhold_store.checkpoints import Checkpoints
from rookhold_store.connection import (
    BUSY_TIMEOUT_MS,
    CHECKPOINT_PAGES,
    WAL_BYTES_KEPT,
    open_existing,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rookhold_store.standing import OpenFiles

# So much of the log may the writer move itself, in the time of one commit.
REST_PAGES: Final = 256
# A log begins anew once it is wholly moved and the readers of its pages have gone, at a commit.
# Among many readers that never happens by chance; from this length on the writer waits for it, and
# no reader of ours has it wait long. A reader that has held on for longer than that is not ours.
LONG_PAGES: Final = 4096
READERS_GO_MS: Final = 20  # at that length; longer in proportion as the log is longer, up to
READERS_GO_MAX_MS: Final = 100
READERS_GONE_SECONDS: Final = 2.0

# Free pages are what the next jobs are written to. They go back to the file system only where they
# are many and a considerable part of the file; giving them back moves pages from the file's end.
FREE_MIN: Final = 2048
FREE_PARTS: Final = 5  # begin above a fifth of the file, end below half of that
LOOK_SECONDS: Final = 1.0
STEP_SECONDS: Final = 0.004
STEP_PAGES: Final = 512
REST_PER_STEP: Final = 4  # so many times its own length a step is followed by a rest
FAILED_SECONDS: Final = 30.0

_INCREMENTAL: Final = 2

logger = logging.getLogger(__name__)


class LogState(Struct, frozen=True, kw_only=True):
    """The write-ahead log at a moment: its size, and whether a reader keeps it from its start."""

    bytes: int  # of its file
    pages: int  # written since its start
    moved: int  # of those, at the last look
    held_seconds: float | None  # None while no reader holds on


class Upkeep:
    """Belongs to the writer's thread, `state` apart; nothing here raises."""

    def __init__(
        self, db: apsw.Connection, path: Path, *, standing: OpenFiles | None = None
    ) -> None:
        self._db = db
        self._path = path
        self._standing = standing
        self._log = Path(f"{path}-wal")
        self._nudge: Callable[[], None] = lambda: None
        self._checkpoints = Checkpoints(self._connect, lambda: self._nudge())
        self._seen = self._checkpoints.last
        self._pages = 0
        self._moved = 0
        self._reclaiming = False
        self._look_at: float | None = monotonic()  # when free pages are worth a look; None: never
        self._restart_at = self._restart_pause = 0.0
        self._restart_pages = 0  # from this length on it is not waited until then
        self._cut_at = 0.0  # not earlier than this is the log's file tried to be cut again
        db.wal_autocheckpoint(0)
        db.set_wal_hook(self._grown)

    def begin(self, nudge: Callable[[], None]) -> None:
        """Have the writer look in when there is something to do: `nudge` makes it."""
        self._nudge = nudge

    def close(self) -> None:
        """End what runs beside the writer; before the writer's connection is closed."""
        self._checkpoints.close()

    def state(self) -> LogState:
        """Tell how the log is; of any thread."""
        return LogState(
            bytes=self._log_bytes(),
            pages=self._pages,
            moved=self._moved,
            held_seconds=self._checkpoints.held_seconds,
        )

    def after_commit(self) -> None:
        """Look at how long the log is; moves a little of it at most, unless nobody else could."""
        if self._look_at is None:
            self._look_at = monotonic() + LOOK_SECONDS
        try:
            self._shorten()
        except apsw.Error as exc:
            self._wait(exc)

    def idle(self) -> float | None:
        """Do one short step; return in how many seconds the next one is due, None if in none."""
        try:
            self._shorten()
            due = [self._cut_log(), self._reclaim()]
        except apsw.Error as exc:
            self._wait(exc)
            return FAILED_SECONDS
        return min((seconds for seconds in due if seconds is not None), default=None)

    def _connect(self) -> apsw.Connection:
        if self._standing is not None:
            self._standing.check()
        return open_existing(self._path)

    def _wait(self, exc: apsw.Error) -> None:
        """Nobody asked for this work, and nobody is told but the log; it is tried again later."""
        logger.warning("upkeep of the database waits (%s)", type(exc).__name__)
        with suppress(apsw.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        self._cut_at = self._look_at = monotonic() + FAILED_SECONDS

    def _grown(self, db: apsw.Connection, name: str, pages: int) -> int:
        """A commit was written: the log is so long now, or begins anew."""
        del db, name
        if pages < self._pages:
            self._moved = 0
        self._pages = pages
        return apsw.SQLITE_OK

    def _shorten(self) -> None:
        if self._pages < CHECKPOINT_PAGES:
            return
        checkpoints = self._checkpoints
        if self._seen is not checkpoints.last:
            self._seen = checkpoints.last
            self._moved = self._seen.moved
        left = self._pages - self._moved
        held = checkpoints.held_seconds or 0.0
        if self._pages >= LONG_PAGES and held < READERS_GONE_SECONDS:
            self._restart()
        elif 0 < left <= REST_PAGES and not held:
            self._move()
        elif left > 0 and not checkpoints.at_work:
            checkpoints.want()

    def _move(self) -> None:
        """Move what no reader stands before; quick where that is nothing."""
        with suppress(apsw.BusyError):  # the thread is at it
            _, self._moved = self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _restart(self) -> None:
        """Move what is left, and wait a little for the readers, so that the log begins anew."""
        if monotonic() < self._restart_at and self._pages < self._restart_pages:
            self._move()
            return
        patience = min(READERS_GO_MS * self._pages // LONG_PAGES, READERS_GO_MAX_MS)
        try:
            self._checkpoint(apsw.SQLITE_CHECKPOINT_RESTART, patience)
            self._restart_at = self._restart_pause = 0.0
        except apsw.BusyError:
            self._restart_pause = min(max(2 * self._restart_pause, 0.05), LOOK_SECONDS)
            self._restart_at = monotonic() + self._restart_pause
            self._restart_pages = self._pages + LONG_PAGES // 2
            if not self._checkpoints.at_work:
                self._checkpoints.want()

    def _checkpoint(self, mode: int, patience_ms: int) -> None:
        self._db.set_busy_timeout(patience_ms)
        try:
            _, self._moved = self._db.wal_checkpoint(mode=mode)
        finally:
            self._db.set_busy_timeout(BUSY_TIMEOUT_MS)

    def _log_bytes(self) -> int:
        try:
            return self._log.stat().st_size
        except OSError:
            return 0

    def _cut_log(self) -> float | None:
        """Give back what a long log that is wholly moved still occupies."""
        if self._moved < self._pages or self._log_bytes() <= WAL_BYTES_KEPT:
            return None
        if (wait := self._cut_at - monotonic()) > 0:
            return wait
        try:
            self._checkpoint(apsw.SQLITE_CHECKPOINT_TRUNCATE, 0)
        except apsw.BusyError:  # somebody reads
            self._cut_at = monotonic() + LOOK_SECONDS
            return LOOK_SECONDS
        self._pages = self._moved = 0
        return None

    def _reclaim(self) -> float | None:
        """Give some free pages back where there are many; then rest, so that others have the disk.

        How many there are is looked at once in a while after something was committed.
        """
        if self._look_at is None:
            return None
        if (wait := self._look_at - monotonic()) > 0:
            return wait
        free, pages = self._db.pragma("freelist_count"), self._db.pragma("page_count")
        parts = 2 * FREE_PARTS if self._reclaiming else FREE_PARTS
        least = FREE_MIN // 2 if self._reclaiming else FREE_MIN
        if self._db.pragma("auto_vacuum") != _INCREMENTAL or free < max(least, pages // parts):
            self._reclaiming = False
            self._look_at = None
            return None
        self._reclaiming = True
        began = monotonic()
        self._give_back(began + STEP_SECONDS)
        rest = REST_PER_STEP * (monotonic() - began)
        self._look_at = monotonic() + rest
        return rest

    def _give_back(self, until: float) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        steps = self._db.execute(f"PRAGMA incremental_vacuum({STEP_PAGES})")
        for _ in steps:  # a row for each page
            if monotonic() >= until:
                break
        steps.close()
        self._db.execute("COMMIT")
