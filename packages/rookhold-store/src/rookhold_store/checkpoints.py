"""Moving the log into the file beside the writer, so that no commit has to wait for it."""

from __future__ import annotations

import logging
import threading
from time import monotonic
from typing import TYPE_CHECKING, Final

import apsw
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

AGAIN_SECONDS: Final = 0.05  # after a pass that a reader cut short; doubled each time
AGAIN_MAX_SECONDS: Final = 0.5  # a pass that finds nothing to move costs next to nothing
TOLD_FROM_PAGES: Final = 4096  # 16 MiB: a reader that keeps a smaller log is not worth a line
TOLD_AGAIN_SECONDS: Final = 600.0

logger = logging.getLogger(__name__)


class Pass(Struct, frozen=True):
    """What one pass found and left, in pages of the log."""

    pages: int = 0
    moved: int = 0

    @property
    def held(self) -> bool:
        """Whether a reader stands before pages that are not moved; it keeps the log growing."""
        return self.moved < self.pages


class Checkpoints:
    """A thread with a connection of its own, begun when the log is long for the first time.

    A pass is passive: it waits for nobody and nobody waits for it. So there can always be commits
    behind it, and the rest of the log is left to the writer: `done` tells it.
    """

    def __init__(self, connect: Callable[[], apsw.Connection], done: Callable[[], None]) -> None:
        self._connect = connect
        self._done = done
        self._db: apsw.Connection | None = None
        self._thread: threading.Thread | None = None
        self._news = threading.Condition()
        self._wanted = False
        self._closed = False
        self._pause = 0.0  # before the next pass, where the last one did not get to the end
        self._held_since: float | None = None
        self._told_at, self._told_pages = 0.0, 0
        self.last = Pass()

    @property
    def held_seconds(self) -> float | None:
        """For how long a reader has kept the log from its start; None while none does."""
        since = self._held_since
        return None if since is None else monotonic() - since

    @property
    def at_work(self) -> bool:
        """Whether a pass will be made without being asked for."""
        return self._wanted or self._pause > 0

    def want(self) -> None:
        """Have a pass made, as soon as one may help."""
        with self._news:
            self._wanted = True
            if self._thread is None and not self._closed:
                self._thread = self._begun()
            self._news.notify()

    def _begun(self) -> threading.Thread | None:
        thread = threading.Thread(
            target=self._serve, name="rookhold-store-checkpoints", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # no more threads or memory now; the writer must not end for it
            logger.warning("the log is not moved: a thread for it cannot be started")
            self._wanted = False
            return None
        return thread

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify()
        if self._thread is not None:
            self._thread.join()
        if self._db is not None:
            self._db.close()

    def _serve(self) -> None:
        while self._awaited():
            try:
                self.last = self._move()
                again = self.last.held
                self._note(held=again)
            except apsw.BusyError:  # somebody else moves it
                again = True
            except Exception as exc:  # noqa: BLE001  # the next pass may do better
                logger.warning("the log could not be moved (%s)", type(exc).__name__)
                again = True
            longer = min(max(2 * self._pause, AGAIN_SECONDS), AGAIN_MAX_SECONDS)
            self._pause = longer if again else 0.0
            self._wanted = False
            self._done()

    def _awaited(self) -> bool:
        """Wait until the next pass is due; False at the end."""
        with self._news:
            if self._pause:
                self._news.wait_for(lambda: self._closed, self._pause)
            else:
                self._news.wait_for(lambda: self._closed or self._wanted)
            return not self._closed

    def _move(self) -> Pass:
        if self._db is None:
            self._db = self._connect()
        # A connection that has read nothing yet does not know of the log.
        self._db.pragma("user_version")
        return Pass(*self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE))

    def _note(self, *, held: bool) -> None:
        now, pages = monotonic(), self.last.pages
        if not held:
            if self._told_pages:
                logger.info("the reader that held the log let it go", extra={"pages": pages})
            self._held_since, self._told_pages = None, 0
            return
        if self._held_since is None:
            self._held_since = now
        longer = pages >= 2 * self._told_pages or now - self._told_at >= TOLD_AGAIN_SECONDS
        if pages >= TOLD_FROM_PAGES and longer:
            self._told_at, self._told_pages = now, pages
            logger.warning(
                "a reader holds on to an old view, so that the log grows and cannot be emptied",
                extra={
                    "pages": pages,
                    "moved": self.last.moved,
                    "seconds": int(now - self._held_since),
                },
            )
