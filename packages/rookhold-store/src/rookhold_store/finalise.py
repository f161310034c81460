"""Ending a job: status, `finished` event, receipt, outbox row and account in one transaction."""

# ruff: noqa: S608  # statements are made of constants alone; values are bindings

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rookhold_store import chain, evidence
from rookhold_store.accounting import row_bytes, settle
from rookhold_store.errors import InvalidOperationError
from rookhold_store.operations import (
    CancelQueued,
    Finalise,
    Finalised,
    Participation,
    RecoverRunning,
)
from rookhold_store.quota import is_of_the_job
from rookhold_types.canonical import canonical
from rookhold_types.events import HASH_VERSION, ChainResult, EventKind
from rookhold_types.states import TERMINAL, JobStatus, KilledBy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import apsw

    from rookhold_store.operations import Participant
    from rookhold_store.quota import Quota
    from rookhold_store.reads import Reads

_EXIT_CODE_MIN: Final = -(2**31)
_EXIT_CODE_MAX: Final = 2**31 - 1

_JOB: Final = f"""
SELECT j.tenant, j.status, j.created_at_ms, j.started_at_ms, octet_length(j.effective_spec_json),
  (SELECT hash_version FROM events WHERE job_id = j.job_id ORDER BY seq LIMIT 1),
  {chain.HEAD_COLUMNS}
FROM jobs j {chain.HEAD_JOIN} WHERE j.job_id = ? AND j.status IN ('queued', 'running')
"""
_SPEC: Final = "SELECT CAST(spec_json AS BLOB) FROM jobs WHERE job_id = ?"
_END: Final = """
UPDATE jobs SET status = ?, exit_code = ?, finished_at_ms = ?, receipt_json = ? WHERE job_id = ?
"""
_END_OBSERVED: Final = """
UPDATE jobs SET status = ?, exit_code = ?, finished_at_ms = ?, receipt_json = ?,
  effective_spec_json = ? WHERE job_id = ?
"""
_OUTBOX: Final = """
INSERT INTO attestation_outbox (job_id, pending_since_ms, attempt_count, next_attempt_ms)
VALUES (?1, ?2, 0, ?2)
"""
_CHAIN_COUNTS: Final = """
SELECT count(*), coalesce(sum(hash_version = 0), 0) FROM events WHERE job_id = ?
"""


class _Job(NamedTuple):
    tenant: str
    status: str
    created_at_ms: int
    started_at_ms: int | None
    effective_spec_bytes: int | None
    first_version: int | None  # of its events' hashes
    last_seq: int | None
    last_hash: str | None


class _Ending(NamedTuple):
    """What is the same for every way to end a job."""

    job_id: str
    status: JobStatus
    exit_code: int | None
    now_ms: int
    participants: Sequence[Participant]
    effective_spec: bytes | None = None
    reason: str | None = None
    before: Sequence[chain.Draft] = ()
    quota: Quota | None = None  # where `before` holds what it may refuse

    def finish(
        self, db: apsw.Connection, job: _Job, receipt: evidence.Parts, duration_ms: int
    ) -> Finalised:
        linked = chain.link(
            self.job_id,
            chain.head(job.last_seq, job.last_hash),
            [*self.before, self._finished(duration_ms)],
            self.now_ms,
        )
        chain.write(db, linked)
        sealed = evidence.seal(
            receipt,
            evidence.core_members(
                job_id=self.job_id,
                status=self.status,
                exit_code=self.exit_code,
                created_at_ms=job.created_at_ms,
                started_at_ms=job.started_at_ms,
                finished_at_ms=self.now_ms,
                duration_ms=duration_ms,
                event_chain=_event_chain(db, self.job_id, job, linked.head),
            ),
        )
        text = sealed.text.decode()
        self._end(db, text)
        db.execute(_OUTBOX, (self.job_id, self.now_ms))
        growth = self._growth(job, linked, sealed.text)
        if self.quota is not None:
            self.quota.check_ending(self.job_id, growth)
        settle(db, self.job_id, growth, pending=True)
        *before, event = linked.events
        if self.participants:
            context = Participation(
                job_id=self.job_id,
                tenant=job.tenant,
                now_ms=self.now_ms,
                status=self.status,
                event=event,
                receipt_json=text,
                receipt_sha256=sealed.sha256,
            )
            for participant in self.participants:
                participant.apply(db, context)
        return Finalised(event=event, receipt_sha256=sealed.sha256, events=tuple(before))

    def _finished(self, duration_ms: int) -> chain.Draft:
        data: dict[str, Any] = {
            "status": self.status.value,
            "exit_code": self.exit_code,
            "duration_ms": duration_ms,
        }
        if self.effective_spec is not None:
            data["effective_spec_sha256"] = hashlib.sha256(self.effective_spec).hexdigest()
        if self.reason is not None:
            data["reason"] = self.reason
        return chain.draft(EventKind.FINISHED.value, data)

    def _end(self, db: apsw.Connection, receipt: str) -> None:
        facts = (self.status.value, self.exit_code, self.now_ms, receipt)
        if self.effective_spec is None:
            db.execute(_END, (*facts, self.job_id))
        else:
            db.execute(_END_OBSERVED, (*facts, self.effective_spec.decode(), self.job_id))

    def _growth(self, job: _Job, linked: chain.Linked, receipt: bytes) -> int:
        growth = (
            linked.retained_bytes
            + len(receipt)
            + len(self.status.value)
            - len(job.status)
            + row_bytes(self.job_id)  # the outbox row
        )
        if self.effective_spec is not None:
            growth += len(self.effective_spec) - (job.effective_spec_bytes or 0)
        return growth


def _load(db: apsw.Connection, job_id: str) -> _Job | None:
    row = db.execute(_JOB, (job_id,)).get
    return None if row is None else _Job(*row)


def _event_chain(db: apsw.Connection, job_id: str, job: _Job, head: chain.Head) -> dict[str, Any]:
    """Return the receipt's statement of counts.

    New events are all hashed and only ever follow legacy ones, so that the first event tells
    whether any are legacy; counting a long history is left to the jobs that have such events.
    """
    total, legacy = head.seq, 0
    if job.first_version not in (None, HASH_VERSION):
        total, legacy = db.execute(_CHAIN_COUNTS, (job_id,)).get
    counted = ChainResult(
        events=total,
        verified_events=total - legacy,
        legacy_events=legacy,
        head=head.hash or None,
    )
    return counted.receipt_member()


class PreparedFinalise:
    """An ending whose receipt and observed spec are already in their stored form."""

    def __init__(self, op: Finalise, quota: Quota) -> None:
        status = _terminal(op.status)
        if op.exit_code is not None and not _EXIT_CODE_MIN <= op.exit_code <= _EXIT_CODE_MAX:
            raise InvalidOperationError("the exit code is not a 32-bit integer")
        if op.duration_ms < 0:
            raise InvalidOperationError("the duration is negative")
        effective = None if op.effective_spec is None else canonical(op.effective_spec)
        self._ending = _Ending(
            job_id=op.job_id,
            status=status,
            exit_code=op.exit_code,
            now_ms=op.now_ms,
            participants=op.participants,
            effective_spec=effective,
            reason=op.reason,
            before=chain.drafts(op.events),
            quota=quota if is_of_the_job(kind for kind, _ in op.events) else None,
        )
        self._duration_ms = op.duration_ms
        self._receipt = evidence.parts(op.receipt)
        self.size = self._receipt.size + len(effective or b"")
        self.size += sum(len(draft.data_json) for draft in self._ending.before)

    def run(self, db: apsw.Connection) -> Finalised | None:
        job = _load(db, self._ending.job_id)
        if job is None:
            return None
        return self._ending.finish(db, job, self._receipt, self._duration_ms)


def _terminal(status: str) -> JobStatus:
    try:
        known = JobStatus(status)
    except ValueError:
        raise InvalidOperationError("there is no such status") from None
    if known not in TERMINAL:
        raise InvalidOperationError("a job ends with a terminal status", status=known.value)
    return known


class _FromStoredSpec:
    """An ending whose receipt is made from the stored spec.

    A spec never changes, so that it is read, decoded and digested before the transaction. Only for
    a job that no reader sees yet is that left to the transaction.
    """

    size = 4096

    def __init__(
        self, reads: Reads, job_id: str, receipt: Callable[[bytes], dict[str, Any]]
    ) -> None:
        self._job_id = job_id
        self._make = receipt
        spec = reads.spec_bytes(job_id)
        self._prepared = None if spec is None else evidence.parts(receipt(spec))

    def receipt(self, db: apsw.Connection) -> evidence.Parts:
        if self._prepared is not None:
            return self._prepared
        return evidence.parts(self._make(db.execute(_SPEC, (self._job_id,)).get))


class PreparedCancel(_FromStoredSpec):
    """The cancellation of a job that still waits."""

    def __init__(self, op: CancelQueued, reads: Reads) -> None:
        super().__init__(reads, op.job_id, evidence.queued_cancel)
        self._op = op

    def run(self, db: apsw.Connection) -> Finalised | None:
        op = self._op
        job = _load(db, op.job_id)
        if job is None or job.tenant != op.tenant or job.status != JobStatus.QUEUED:
            return None
        ending = _Ending(
            job_id=op.job_id,
            status=JobStatus.CANCELLED,
            exit_code=None,
            now_ms=op.now_ms,
            participants=op.participants,
        )
        return ending.finish(db, job, self.receipt(db), 0)


class PreparedRecovery(_FromStoredSpec):
    """The end of a job whose server died; it is never run again."""

    def __init__(self, op: RecoverRunning, reads: Reads) -> None:
        super().__init__(reads, op.job_id, evidence.restart)
        self._op = op

    def run(self, db: apsw.Connection) -> Finalised | None:
        op = self._op
        job = _load(db, op.job_id)
        if job is None or job.status != JobStatus.RUNNING:
            return None
        ending = _Ending(
            job_id=op.job_id,
            status=JobStatus.ERROR,
            exit_code=None,
            now_ms=op.now_ms,
            participants=op.participants,
            reason=KilledBy.SERVER_RESTARTED.value,
        )
        duration_ms = max(0, op.now_ms - (job.started_at_ms or op.now_ms))
        return ending.finish(db, job, self.receipt(db), duration_ms)
