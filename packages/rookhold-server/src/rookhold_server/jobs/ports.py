"""What the job side needs from outside, as Protocols.

The embedded store, queue and fan-out stand behind them. A network database, a durable queue or a
stream bus can take a place without the worker, the routes or the evidence noticing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rookhold_exec.executor import SandboxPlan
    from rookhold_server.jobs.admission import Lease
    from rookhold_server.jobs.dispatcher import QueuePlace
    from rookhold_server.jobs.fairqueue import Grant, Pending
    from rookhold_server.jobs.live import LiveChannel
    from rookhold_store.operations import Operation, Participant
    from rookhold_store.rows import (
        AttestationRow,
        AttestationStatusRow,
        Cursor,
        EventTexts,
        JobRow,
        JobSummary,
        KeyRow,
        OutboxRow,
        PendingRow,
        QueuedRow,
        ReplayRows,
    )
    from rookhold_types.events import WireEvent
    from rookhold_types.states import JobStatus

R = TypeVar("R")


class JobReads(Protocol):
    """Short reads; what they return is committed. `tenant` None is the privileged view."""

    def get(self, tenant: str | None, job_id: str) -> JobRow | None: ...

    def summary(self, tenant: str | None, job_id: str) -> JobSummary | None: ...

    def list_jobs(
        self,
        tenant: str | None,
        limit: int = ...,
        cursor: Cursor | None = ...,
        status: str | None = ...,
        language: str | None = ...,
    ) -> tuple[JobSummary, ...]: ...

    def events_after(
        self, job_id: str, after: int = ..., limit: int = ...
    ) -> tuple[WireEvent, ...]: ...

    def replay(
        self, tenant: str | None, job_id: str, after: int = ..., limit: int = ...
    ) -> ReplayRows | None: ...

    def event_texts(
        self, tenant: str | None, job_id: str, after: int, *, limit: int, max_bytes: int
    ) -> EventTexts | None: ...

    def queued_page(
        self, after: Cursor | None = ..., limit: int = ...
    ) -> tuple[QueuedRow, ...]: ...

    def running_ids(self, limit: int = ...) -> tuple[str, ...]: ...

    def pending_attestations(self, now_ms: int, limit: int = ...) -> tuple[PendingRow, ...]: ...

    def outbox(self, job_id: str) -> OutboxRow | None: ...

    def attestation(self, tenant: str | None, job_id: str) -> AttestationRow | None: ...

    def attestation_status(
        self, tenant: str | None, job_id: str
    ) -> AttestationStatusRow | None: ...

    def retained_bytes(self, job_id: str) -> int: ...

    def outbox_counts(self) -> tuple[int, int]: ...

    def find_key(self, tenant: str, key: str) -> KeyRow | None: ...

    def probe(self) -> bool: ...


class ConsistentReads(JobReads, Protocol):
    """The same, and views that see one moment."""

    def snapshot(self) -> AbstractContextManager[JobReads]: ...


class JobStore(Protocol):
    """Durable operations as messages, and short reads."""

    async def run(self, operation: Operation[R], *, large: bool = False) -> R:
        """Return once the operation is durable, or raise.

        `large` warns that preparing it takes time: much data, or a read before the write.
        """

    async def run_made(self, make: Callable[[ConsistentReads], Operation[R] | None]) -> R | None:
        """Have an operation made of what is stored, then run it; None if none was made.

        Reading, making and preparing may take their time: the loop is not held up.
        """

    async def read(self, query: Callable[[ConsistentReads], R], *, brief: bool = False) -> R:
        """Return what `query` returns; `brief` promises a few look-ups by key, small rows each."""

    async def probe(self) -> bool:
        """Whether work can be read and written; False or an error says that it cannot."""


class Admission(Protocol):
    """Counts the jobs that are still queued."""

    def depth(self, tenant: str) -> int: ...

    def reserve(self, tenant: str) -> Lease: ...

    async def readmit(self, tenant: str) -> Lease: ...

    def close(self) -> None: ...


class Scheduling(Protocol):
    """Orders accepted jobs and hands them to free workers."""

    def offer(self, pending: Pending) -> bool: ...

    async def next(self) -> Grant | None: ...

    def finished(self, grant: Grant) -> None: ...

    def mark_cancelled(self, tenant: str, job_id: str) -> None: ...

    def place(self, tenant: str, job_id: str) -> QueuePlace | None: ...

    def running(self, tenant: str) -> int: ...

    def close(self) -> None: ...


class LiveBus(Protocol):
    """Carries committed events to whoever watches, and the end of a job to whoever waits."""

    def open(self, job_id: str) -> LiveChannel: ...

    def get(self, job_id: str) -> LiveChannel | None: ...

    def publish(self, job_id: str, events: Sequence[WireEvent]) -> None: ...

    def close(self, job_id: str) -> None: ...

    def disturb_all(self) -> None: ...


class Companion(Protocol):
    """What one governed job brings beyond a plain one."""

    def extend(self, plan: SandboxPlan) -> SandboxPlan:
        """Add mounts, workspace, environment or identity."""

    def receipt_members(self) -> Mapping[str, object]:
        """Members beside the plain ones; they are signed with the receipt."""

    def finalising(self, status: JobStatus) -> Sequence[Participant]:
        """Rows that belong in the transaction that ends the job."""


class Companions(Protocol):
    """Finds what belongs to a governed job, also after a restart."""

    async def of(self, row: JobRow) -> Companion | None:
        """The companion of a job that a worker has in hand."""

    async def ending_unrun(self, job_id: str) -> Sequence[Participant]:
        """Rows for the transaction that ends a job which no worker of this process has."""


class NoCompanions:
    """Without governance every job is plain."""

    async def of(self, row: JobRow) -> Companion | None:
        return None

    async def ending_unrun(self, job_id: str) -> Sequence[Participant]:
        return ()
