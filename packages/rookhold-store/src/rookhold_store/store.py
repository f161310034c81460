"""The store: one database file, one writer, readers for any thread."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rookhold_store import connection, files, log_origin, outbox, schema
from rookhold_store.accept import PreparedAccept
from rookhold_store.attestations import PreparedPersist
from rookhold_store.errors import InvalidOperationError
from rookhold_store.finalise import PreparedCancel, PreparedFinalise, PreparedRecovery
from rookhold_store.operations import (
    Accept,
    Append,
    CancelQueued,
    DeferAttestation,
    FailAttestation,
    Finalise,
    Operation,
    PersistAttestation,
    ProveWritable,
    RecoverRunning,
    RetryAttestations,
    Start,
    Sweep,
    WaiveAttestation,
)
from rookhold_store.outbox import PreparedDefer, PreparedFail, PreparedRetry, PreparedWaive
from rookhold_store.pool import ReadPool, Snapshot
from rookhold_store.progress import PreparedAppend, PreparedStart
from rookhold_store.proof import PreparedProof
from rookhold_store.quota import Quota
from rookhold_store.rehearsal import Rehearsal
from rookhold_store.retention import Pace, PreparedSweep
from rookhold_store.standing import OpenFiles
from rookhold_store.tally import JobTally
from rookhold_store.upkeep import LogState, Upkeep
from rookhold_store.writer import Work, Writer
from rookhold_types.clock import Clock, now_ms

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    import apsw

    from rookhold_store.binding import BindingCheck
    from rookhold_store.quota import StorageLimits

R = TypeVar("R")

PROFILE: Final = "1"  # the attestation profile version, unless the caller says another


class Store:
    """An open database. Operations go to the writer as messages; reads need none.

    Safe to use from any thread. A second store over the same file, also of another process, is
    refused nothing by SQLite; a server keeps it out with an InstanceLock.
    """

    def __init__(
        self,
        path: Path,
        db: apsw.Connection,
        *,
        binding: BindingCheck | None,
        clock: Clock,
        quota: Quota,
        tally: JobTally | None = None,
    ) -> None:
        self.path = path
        self.clock = clock
        self.opening = schema.Opening()
        self.limits: Final = quota.limits
        self._quota = quota
        self._tally = tally
        standing = OpenFiles(path)
        self.read: Final = ReadPool(path, standing=standing)
        self._commits: list[Callable[[int], object]] = []
        self._upkeep = Upkeep(db, path, standing=standing)
        self._writer = Writer(db, committed=self._committed, standing=standing, upkeep=self._upkeep)
        rehearsal, pace = Rehearsal(self.read), Pace()
        self.on_commit(pace.committed)
        self._prepare: Mapping[type, Callable[[Any], Work]] = {
            Accept: lambda op: PreparedAccept(op, quota),
            Start: PreparedStart,
            Append: lambda op: PreparedAppend(op, quota),
            Finalise: lambda op: PreparedFinalise(op, quota),
            CancelQueued: lambda op: PreparedCancel(op, self.read),
            RecoverRunning: lambda op: PreparedRecovery(op, self.read),
            PersistAttestation: lambda op: PreparedPersist(op, binding),
            DeferAttestation: PreparedDefer,
            WaiveAttestation: PreparedWaive,
            FailAttestation: PreparedFail,
            RetryAttestations: PreparedRetry,
            Sweep: lambda op: PreparedSweep(op, rehearsal, pace),
            ProveWritable: PreparedProof,
        }

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        binding: BindingCheck | None = None,
        profile: str = PROFILE,
        clock: Clock = now_ms,
        limits: StorageLimits | None = None,
        tallied: bool = False,
    ) -> Self:
        """Open or make the database at `path`; raises a StoreError that says why not.

        Without `binding` no attestation can be stored, without `limits` there is no quota and the
        disk is not looked at. What is `tallied` answers `job_counts`. An older file is upgraded, in
        one transaction; `opening` then tells what was done. A file that is refused is not changed.
        """
        secured = files.secure_database(path)
        try:
            db = connection.open_existing(secured)
        except connection.ENGINE_ERRORS as exc:
            raise connection.as_ours(exc) from exc
        quota = Quota(limits, secured.parent)
        try:
            schema.refuse_before_rollback(secured)
            connection.look_at_log(db)
            files.secure_side_files(secured)
            log_origin.refuse_foreign(db)
            opening = _make_ready(db, profile, clock(), binding)
            quota.prepare(db)
            files.secure_side_files(secured)
            connection.trust_log(db)
            tally = JobTally(db, secured) if tallied else None
        except connection.ENGINE_ERRORS as exc:
            connection.leave(db)
            raise connection.as_ours(exc) from exc
        except BaseException:
            connection.leave(db)
            raise
        opened = cls(secured, db, binding=binding, clock=clock, quota=quota, tally=tally)
        opened.opening = opening
        return opened

    def submit(self, op: Operation[R]) -> Future[R]:
        """Prepare an operation in this thread and queue it; never raises, the future does.

        The future's callbacks run in the writer's thread and must be brief.
        """
        try:
            prepare = self._prepare.get(type(op))
            if prepare is None:
                raise InvalidOperationError("there is no such operation")
            work = prepare(op)
        except Exception as exc:  # noqa: BLE001  # one way to learn of a failure, whatever it is
            failed: Future[R] = Future()
            failed.set_exception(connection.translated(exc))
            return failed
        work = self._quota.followed(work)
        if self._tally is not None:
            work = self._tally.followed(work)
        return self._writer.submit(work, apart=isinstance(op, Sweep))

    def call(self, op: Operation[R]) -> R:
        """Do an operation and wait until its commit is on the disk."""
        return self.submit(op).result()

    def reader(self) -> AbstractContextManager[Snapshot]:
        """Lend reads that all see one moment; hold it briefly."""
        return self.read.snapshot()

    def on_commit(self, listener: Callable[[int], object]) -> None:
        """Call `listener` after each shared commit with the number of operations in it."""
        self._commits.append(listener)

    def job_counts(self, tenant: str, *, wait_seconds: float = 0) -> Mapping[str, int] | None:
        """Return how many jobs a tenant has in each status that occurs, at no cost that grows.

        None while those of before the open are being counted. Only of a store that is `tallied`.
        """
        if self._tally is None:
            raise InvalidOperationError("this store was not opened to be tallied")
        return self._tally.of(tenant, wait_seconds=wait_seconds)

    def log_state(self) -> LogState:
        """Tell how long the write-ahead log is, and whether a reader keeps it from its start."""
        return self._upkeep.state()

    def _committed(self, operations: int) -> None:
        self._quota.committed()
        if self._tally is not None:
            self._tally.committed(operations)
        for listener in self._commits:
            listener(operations)

    def close(self) -> None:
        """Finish what was submitted and close every connection, the writer's last.

        Only a connection that may write can empty the log and remove it as it leaves.
        """
        self._writer.finish()
        if self._tally is not None:
            self._tally.close()
        self.read.close()
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _make_ready(
    db: apsw.Connection, profile: str, now: int, binding: BindingCheck | None
) -> schema.Opening:
    opening = schema.Opening()
    fresh = schema.is_fresh(db)
    if fresh:
        connection.prepare_new(db)
    elif not schema.judge(db).ready:
        opening = schema.upgrade(db, binding=binding, now_ms=now)
    connection.prepare_writer(db)
    if fresh:
        schema.create(db, now)  # unless another process has done so meanwhile
    log_origin.give_number(db)
    outbox.reseed(db, profile=profile, now_ms=now)
    return opening
