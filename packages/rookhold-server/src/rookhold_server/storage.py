"""The loop's way to the store: writer futures without a thread hop, reads in a few threads."""

from __future__ import annotations

import asyncio  # noqa: TID251 - settles a loop future from the store's writer thread
from contextlib import contextmanager, suppress
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from rookhold_server.errands import Errands
from rookhold_server.metrics.recorder import SILENT, Recorder, StorageWork
from rookhold_store import (
    Accept,
    Append,
    CancelQueued,
    Finalise,
    ProveWritable,
    RecoverRunning,
    ReserveReachedError,
    Start,
    StorageUnavailableError,
    StoreClosedError,
)
from rookhold_store.operations import Sweep
from rookhold_store.quota import free_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future

    from rookhold_server.jobs.ports import ConsistentReads
    from rookhold_store import Store
    from rookhold_store.operations import Operation

R = TypeVar("R")

# Attestations and the proof that follows a failure are not among what is counted.
_WORK: Final = MappingProxyType(
    {
        Accept: StorageWork.ACCEPT,
        Start: StorageWork.START,
        Append: StorageWork.EVENTS,
        Finalise: StorageWork.FINALIZE,
        CancelQueued: StorageWork.FINALIZE,
        RecoverRunning: StorageWork.RECOVERY,
        Sweep: StorageWork.RETENTION,
    }
)
COUNT_SECONDS = 10  # as long as the jobs of before the start may take to be counted
READER_THREADS = 8  # each has a connection; more would only wait for the same two cores


class Room(NamedTuple):
    """A quota or a reserve of 0 is none."""

    charged_bytes: int
    quota_bytes: int
    free_bytes: int
    reserve_bytes: int


class Storage:
    """Satisfies `jobs.ports.JobStore` over the embedded store."""

    def __init__(self, store: Store, recorder: Recorder = SILENT) -> None:
        self._store = store
        self._recorder = recorder
        self._threads = Errands("rookhold-store-reader", READER_THREADS)
        self._writable = True  # as far as the operations that we saw can tell

    async def run(self, operation: Operation[R], *, large: bool = False) -> R:
        """Return once the operation is durable; raises what the store says.

        Its rows are prepared by whoever submits it; `large` has a thread do that. Cancelling the
        call does not withdraw the operation: it may still be committed.
        """
        with self._timed(_WORK.get(type(operation))):
            if large:
                submitted = await self._threads.run(lambda: self._store.submit(operation))
            else:
                submitted = self._store.submit(operation)
            return await self._committed(submitted)

    async def run_made(self, make: Callable[[ConsistentReads], Operation[R] | None]) -> R | None:
        """Make an operation, submit it in the same thread, return once it is durable."""

        def visit() -> Future[R] | None:
            operation = make(self._store.read)
            return None if operation is None else self._store.submit(operation)

        submitted = await self._threads.run(visit)
        if submitted is None:
            return None
        return await self._committed(submitted)

    async def _committed(self, submitted: Future[R]) -> R:
        try:
            answer: R = await _answer(submitted)
        except ReserveReachedError:  # nothing was tried: what can be written is another question
            raise
        except StorageUnavailableError:  # a full disk, above all
            self._writable = False
            raise
        return answer

    async def probe(self) -> bool:
        """Whether the store can be read and, where a commit has just failed, takes one again.

        A commit is tried only then: an idle store is not written to for the sake of asking.
        """
        with self._timed(StorageWork.READINESS):
            readable = await self._threads.run(lambda: self._store.read.probe())
            if readable and not self._writable:
                await self.run(ProveWritable())
                self._writable = True
        return readable

    async def read(self, query: Callable[[ConsistentReads], R], *, brief: bool = False) -> R:
        """Run a short read; no transaction outlives it.

        A brief one runs here and now: writers never make a reader of this store wait, and handing a
        look-up by key to a thread keeps the loop busy for longer than the look-up.
        """
        with self._timed(StorageWork.READ):
            if brief:
                return query(self._store.read)
            return await self._threads.run(lambda: query(self._store.read))

    async def room(self) -> Room:
        """How much is stored and may be, and what disk is left."""
        limits = self._store.limits

        def look() -> Room:
            return Room(
                charged_bytes=self._store.read.charged_bytes(),
                quota_bytes=0 if limits is None else limits.global_bytes,
                free_bytes=free_bytes(self._store.path.parent),
                reserve_bytes=0 if limits is None else limits.free_reserve_bytes,
            )

        return await self._threads.run(look)

    async def job_counts(self, tenant: str) -> Mapping[str, int]:
        """How many jobs a tenant has in each status that occurs, without reading any of them."""
        if (counts := self._store.job_counts(tenant)) is None:  # soon after the start
            counts = await self._threads.run(
                lambda: self._store.job_counts(tenant, wait_seconds=COUNT_SECONDS)
            )
        if counts is None:
            raise StorageUnavailableError("the jobs are still being counted")
        return counts

    @contextmanager
    def _timed(self, work: StorageWork | None) -> Iterator[None]:
        """Note how long it took and whether the storage failed; a refusal of its rules is none."""
        if work is None or self._recorder is SILENT:
            yield
            return
        began, failed = perf_counter(), True
        try:
            yield
            failed = False
        except (StorageUnavailableError, StoreClosedError):
            raise
        except Exception:
            failed = False
            raise
        finally:
            self._recorder.stored(work, perf_counter() - began, failed=failed)


async def _answer(submitted: Future[R]) -> R:
    loop = asyncio.get_running_loop()
    settled: asyncio.Future[R] = loop.create_future()

    def hand_over(source: Future[R]) -> None:
        with suppress(RuntimeError):  # the loop is gone, and so is whoever waited
            loop.call_soon_threadsafe(_settle, source, settled)

    submitted.add_done_callback(hand_over)
    return await settled


def _settle(source: Future[R], settled: asyncio.Future[R]) -> None:
    if settled.cancelled():
        return
    if (error := source.exception()) is not None:
        settled.set_exception(error)
    else:
        settled.set_result(source.result())
