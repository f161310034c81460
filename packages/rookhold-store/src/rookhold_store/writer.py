"""The one thread that writes: operations that arrive together share one durable commit."""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from concurrent.futures import Future
from enum import Enum
from time import sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import apsw

from rookhold_store.connection import as_ours, seen, translated
from rookhold_store.errors import StorageUnavailableError, StoreClosedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rookhold_store.standing import OpenFiles
    from rookhold_store.upkeep import Upkeep

BATCH_MAX: Final = 256
BATCH_BYTES_MAX: Final = 16 * 1024 * 1024  # bounds the log that one commit writes
GATHER_SECONDS: Final = 0.0002  # between two looks at who has come back
GATHER_LOOKS: Final = 10

logger = logging.getLogger(__name__)


class Work(Protocol):
    """A prepared operation: all that is left is to read and write rows."""

    size: int  # about how many bytes it will write

    def run(self, db: apsw.Connection) -> object: ...


class _Entry(NamedTuple):
    work: Work
    future: Future[Any]
    apart: bool


class _Look(Enum):
    """In the queue: there may be something to do for the file."""

    NOW = "now"


class Writer:
    """Owns the write connection. Answers come after the commit; callbacks run in its thread."""

    def __init__(
        self,
        db: apsw.Connection,
        *,
        committed: Callable[[int], object] | None = None,
        standing: OpenFiles | None = None,
        upkeep: Upkeep | None = None,
    ) -> None:
        self._db = db
        self._standing = standing
        self._committed = committed  # told the number of operations in each commit
        self._upkeep = upkeep
        self._queue: queue.SimpleQueue[_Entry | _Look | None] = queue.SimpleQueue()
        self._apart: deque[_Entry] = deque()
        self._lock = threading.Lock()
        self._closed = False
        self._ended = False  # the last of the queue was taken
        self._thread = threading.Thread(
            target=self._serve, name="rookhold-store-writer", daemon=True
        )
        if upkeep is not None:
            upkeep.begin(lambda: self._queue.put(_Look.NOW))
        self._thread.start()

    def submit(self, work: Work, *, apart: bool = False) -> Future[Any]:
        """Queue prepared work; a future that is cancelled before its turn is not run.

        Work that is `apart` has a commit of its own, after the work that already waits and before
        any more of its kind.
        """
        future: Future[Any] = Future()
        with self._lock:
            if not self._closed:
                self._queue.put(_Entry(work, future, apart))
                return future
        future.set_exception(StoreClosedError("the store is closed"))
        return future

    def finish(self) -> None:
        """Take nothing more, do what was submitted, and end the thread."""
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._queue.put(None)
        self._thread.join()
        if self._upkeep is not None:
            self._upkeep.close()

    def close(self) -> None:
        """Finish, then close the connection."""
        self.finish()
        self._db.close()

    def _serve(self) -> None:
        while not self._ended or self._apart:
            if batch := self._collect():
                self._commit(batch)
                self._gather(len(batch))
            if self._apart:
                self._commit([self._apart.popleft()])
            if self._upkeep is not None:
                self._upkeep.after_commit()

    def _gather(self, answered: int) -> None:
        """Let those whom one commit answered come back together, while they keep coming.

        Begun at the first of them, the next commit would be its alone: two groups would then take
        turns, each half as large, and dispute the interpreter with each other.
        """
        come = 0
        for _ in range(GATHER_LOOKS if answered > 1 else 0):
            sleep(GATHER_SECONDS)
            before, come = come, self._queue.qsize()
            if come >= answered or come == before:
                break

    def _collect(self) -> list[_Entry]:
        """Wait for one operation, then take what has gathered meanwhile."""
        batch: list[_Entry] = []
        size = 0
        while len(batch) < BATCH_MAX and size < BATCH_BYTES_MAX:
            entry = self._next(wait=not (batch or self._apart))
            if entry is None:
                break
            if not entry.future.set_running_or_notify_cancel():
                continue
            if entry.apart:
                self._apart.append(entry)
            else:
                batch.append(entry)
                size += entry.work.size
        return batch

    def _next(self, *, wait: bool) -> _Entry | None:
        """Take from the queue; None if there is nothing yet, or nothing more at all."""
        while not self._ended:
            try:
                entry = self._queue.get(block=False)
            except queue.Empty:
                if not wait:
                    return None
                try:
                    entry = self._queue.get(timeout=self._rest())
                except queue.Empty:
                    continue
            if not isinstance(entry, _Look):
                self._ended = entry is None
                return entry
        return None

    def _rest(self) -> float | None:
        """Nothing waits: do a step for the file, and say how long the next one has time."""
        return None if self._upkeep is None else self._upkeep.idle()

    def _commit(self, batch: list[_Entry]) -> None:
        outcomes: list[tuple[Future[Any], object, BaseException | None]] = []
        try:
            self._begin()
            if len(batch) == 1:
                work, future, _ = batch[0]
                outcomes.append((future, *self._run_alone(work)))
            else:
                for work, future, _ in batch:
                    outcomes.append((future, *self._run(work)))
                self._db.execute("COMMIT")
        except BaseException as exc:  # noqa: BLE001  # whatever it is, every caller must hear of it
            failure = _shared_failure(seen(self._db, exc))
            self._abandon()
            outcomes = [(future, None, alone or failure) for future, _, alone in outcomes]
            outcomes += [(future, None, failure) for _, future, _ in batch[len(outcomes) :]]
        # First what is kept beside the file: whoever has an answer finds it as of that answer.
        self._tell(sum(alone is None for _, _, alone in outcomes))
        for future, result, alone in outcomes:
            _answer(future, result, alone)

    def _tell(self, operations: int) -> None:
        try:
            if self._committed is not None:
                self._committed(operations)
        except BaseException as exc:  # noqa: BLE001  # a listener's mistake must not stop the writer
            logger.error("a commit listener failed: %s", type(exc).__name__)

    def _begin(self) -> None:
        if self._db.in_transaction:  # an earlier rollback failed
            self._db.execute("ROLLBACK")
        if self._standing is not None:
            self._standing.check()
        self._db.execute("BEGIN IMMEDIATE")

    def _run_alone(self, work: Work) -> tuple[object, BaseException | None]:
        """Run the only operation of a transaction to its commit; it needs no savepoint in it."""
        try:
            result = work.run(self._db)
        except BaseException as exc:
            if not self._db.in_transaction:
                raise
            failure = translated(seen(self._db, exc))
            self._db.execute("ROLLBACK")
            return None, failure
        self._db.execute("COMMIT")
        return result, None

    def _run(self, work: Work) -> tuple[object, BaseException | None]:
        """Run one operation in its savepoint; what it raises is its own unless all is lost."""
        self._db.execute("SAVEPOINT operation")
        try:
            result = work.run(self._db)
        except BaseException as exc:  # a participant may raise anything; it is the caller's
            if not self._db.in_transaction:  # SQLite rolled everything back: full, I/O, memory
                raise
            failure = translated(seen(self._db, exc))
            self._db.execute("ROLLBACK TO operation")
            self._db.execute("RELEASE operation")
            return None, failure
        self._db.execute("RELEASE operation")
        return result, None

    def _abandon(self) -> None:
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except apsw.Error as exc:
            logger.error("rollback failed: %s", type(exc).__name__)  # no payloads in logs


def _answer(future: Future[Any], result: object, alone: BaseException | None) -> None:
    try:
        if alone is None:
            future.set_result(result)
        else:
            future.set_exception(alone)
    except BaseException as exc:  # noqa: BLE001  # a callback's mistake must not stop the writer
        logger.error("a callback of an answer failed: %s", type(exc).__name__)


def _shared_failure(exc: BaseException) -> StoreError:
    if isinstance(exc, apsw.Error):
        ours = as_ours(exc)
        if isinstance(ours, StorageUnavailableError):
            ours.__cause__ = exc
            return ours
    failure = StorageUnavailableError("the shared commit failed")
    failure.__cause__ = exc
    return failure
