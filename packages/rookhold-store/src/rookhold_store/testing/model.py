"""What a store should hold and answer, in plain dictionaries: simple enough to be believed.

It knows neither SQL nor transactions. It takes the store's own messages one after another, says
what each must be answered, and charges every byte by counting texts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from rookhold_store import evidence
from rookhold_store.errors import StoreError
from rookhold_store.operations import (
    Accept,
    Accepted,
    Append,
    CancelQueued,
    DeferAttestation,
    FailAttestation,
    Finalise,
    Finalised,
    Operation,
    PersistAttestation,
    ProveWritable,
    RecoverRunning,
    Replayed,
    RetryAttestations,
    Start,
    Started,
    Sweep,
    Swept,
    WaiveAttestation,
)
from rookhold_store.retention import EVENTS_MAX
from rookhold_types.canonical import canonical
from rookhold_types.events import check_chain
from rookhold_types.jobs import Requirements
from rookhold_types.receipts import placeholder_spec
from rookhold_types.states import TERMINAL

if TYPE_CHECKING:
    from rookhold_store.quota import StorageLimits
    from rookhold_store.store import Store

MIB: Final = 1024 * 1024
HASH: Final = "0" * 64  # as long as any
NOTHING_SWEPT: Final = Swept(jobs_deleted=0, events_deleted=0, more_remaining=False)
Told = tuple[Any, ...]


def told(answer: object) -> Told:
    """Return an answer, or an error in its place, without what depends on chance."""
    match answer:
        case StoreError():
            return ("refused", answer.code)
        case Accepted() | Started() | Finalised():
            return (type(answer).__name__, answer.event.seq)
        case Replayed():
            return ("Replayed", answer.job_id)
        case Swept():
            return ("Swept", answer.jobs_deleted, answer.events_deleted, answer.more_remaining)
        case tuple() if answer and isinstance(answer[0], str):
            return ("retried", *sorted(answer))
        case tuple():
            return ("events", *(event.seq for event in answer))
        case None | bool() | str():
            return (answer,)
        case _:
            raise TypeError(f"no store answers with {answer!r}")


def _row(*texts: str | bytes | None) -> int:
    sizes = (len(text if isinstance(text, bytes) else text.encode()) for text in texts if text)
    return 64 + sum(sizes)


class ModelEvent(NamedTuple):
    kind: str
    data: dict[str, Any]
    size: int


@dataclass
class ModelJob:
    """One job. `outbox` is None, "" while it waits for a signature, or a waiver's code."""

    accept: Accept
    status: str = "queued"
    started_at_ms: int | None = None
    finished_at_ms: int | None = None
    effective: bytes | None = None
    receipt: bytes | None = None
    events: list[ModelEvent] = field(default_factory=list)
    attestation: PersistAttestation | None = None
    outbox: str | None = None
    reserved: int = 32 * MIB
    hidden_at_ms: int | None = None

    @property
    def over(self) -> bool:
        return self.status in TERMINAL

    @property
    def spec(self) -> bytes:
        return canonical(self.accept.spec)

    @property
    def key(self) -> str | None:
        return None if self.hidden_at_ms is not None else self.accept.idempotency_key

    def add(self, kind: str, data: dict[str, Any]) -> None:
        size = _row(kind, canonical(data), HASH if self.events else "", HASH)
        self.events.append(ModelEvent(kind, data, size))

    def retained(self) -> int:
        """Count the texts of every row that hangs on the job, and 64 bytes for each row."""
        op, signed = self.accept, self.attestation
        size = _row(op.job_id, op.tenant, op.language, self.status)
        size += len(self.spec) + len(self.effective or b"") + len(self.receipt or b"")
        size += sum(event.size for event in self.events)
        if signed is not None:
            size += _row(signed.job_id, HASH, HASH, HASH, signed.result_media_type, signed.key_id)
            size += len(signed.result_artifact) + len(signed.envelope)
        if self.outbox is not None:
            size += _row(op.job_id, self.outbox)
        if self.key is not None:
            size += _row(op.tenant, self.key, HASH, op.job_id)
        return size


class Model:
    """All jobs by id; `apply` is the whole interface of a store that writes."""

    def __init__(self, limits: StorageLimits | None = None) -> None:
        self.limits = limits
        self.jobs: dict[str, ModelJob] = {}

    def copy(self) -> Model:
        twin = Model(self.limits)
        for job_id, job in self.jobs.items():  # what a job holds is replaced, not changed
            twin.jobs[job_id] = replace(job, events=list(job.events))
        return twin

    def apply(self, op: Operation[Any], answer: object = None) -> Told:
        """Do an operation and return what a store must say to it.

        A sweep may do less than it could, for lack of time: `answer` tells how much it did.
        """
        match op:
            case Accept():
                return self._accept(op)
            case Sweep():
                return self._sweep(op, answer if isinstance(answer, Swept) else NOTHING_SWEPT)
            case RetryAttestations():
                return self._retry(op)
            case ProveWritable():
                return (None,)
            case _:
                job_id: str = getattr(op, "job_id", "")
                return self._to_one(op, self.jobs.get(job_id))

    def reopen(self) -> None:
        """Do what an open does: list again whatever should be signed and is not."""
        for job in self._visible():
            if job.over and job.attestation is None and job.outbox is None:
                job.outbox, job.reserved = "", 20 * MIB

    def charged(self, tenant: str | None = None) -> int:
        return sum(
            job.retained() + job.reserved
            for job in self.jobs.values()
            if tenant in (None, job.accept.tenant)
        )

    def _visible(self) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.hidden_at_ms is None]

    def _accept(self, op: Accept) -> Told:
        for job in self._visible():
            if op.idempotency_key is not None and (op.tenant, op.idempotency_key) == (
                job.accept.tenant,
                job.key,
            ):
                if job.accept.fingerprint != op.fingerprint:
                    return ("refused", "idempotency_key_reused")
                return ("Replayed", job.accept.job_id)
        if op.job_id in self.jobs:
            return ("refused", "record_refused")
        job = ModelJob(op)
        data = {"status": "queued", "tenant": op.tenant, "language": op.language}
        job.add("accepted", data | {"requested_spec_sha256": HASH})
        if self.limits is not None:
            charge = job.retained() + job.reserved
            if self.charged(op.tenant) + charge > self.limits.tenant_bytes:
                return ("refused", "tenant_storage_quota")
            if self.charged() + charge > self.limits.global_bytes:
                return ("refused", "storage_capacity")
        self.jobs[op.job_id] = job
        return ("Accepted", 1)

    def _to_one(self, op: Operation[Any], job: ModelJob | None) -> Told:
        visible = job if job is not None and job.hidden_at_ms is None else None
        match op:
            case Append():
                return self._append(op, visible)
            case PersistAttestation():
                return _persist(op, visible)
            case DeferAttestation() | WaiveAttestation() | FailAttestation():
                return _without_signature(op, job)
            case _:
                pass
        if job is None or job.over:
            return (None,)
        match op:
            case Start() if job.status == "queued":
                return _start(job, op)
            case Finalise():
                return _end(job, op)
            case CancelQueued() if job.status == "queued" and job.accept.tenant == op.tenant:
                return _end(job, _ending(op, "cancelled", evidence.queued_cancel(job.spec), 0))
            case RecoverRunning() if job.status == "running":
                lasted = max(0, op.now_ms - (job.started_at_ms or 0))
                return _end(job, _ending(op, "error", evidence.restart(job.spec), lasted))
            case _:
                return (None,)

    def _append(self, op: Append, job: ModelJob | None) -> Told:
        if not op.events:
            return ("events",)
        if job is None:
            return ("refused", "job_not_found")
        if job.over:
            return ("refused", "job_ended")
        before, first = job.retained(), len(job.events) + 1
        for kind, data in op.events:
            job.add(kind, data)
        job.reserved = max(20 * MIB, job.reserved - (job.retained() - before))
        return ("events", *range(first, len(job.events) + 1))

    def _retry(self, op: RetryAttestations) -> Told:
        wanted = self.jobs if op.job_ids is None else op.job_ids
        failed = [job for job in self._visible() if job.outbox and job.accept.job_id in wanted]
        for job in failed:
            job.outbox, job.reserved = "", 20 * MIB
        ids = sorted(job.accept.job_id for job in failed)
        return ("retried", *ids) if ids else ("events",)

    def sweep_turn(self, op: Sweep) -> list[str]:
        """Return whose turn it is: what is begun, then what is old enough, the oldest first."""
        begun = sorted(
            (job.hidden_at_ms, job.accept.job_id)
            for job in self.jobs.values()
            if job.hidden_at_ms is not None
        )
        old = sorted(
            (job.finished_at_ms, job.accept.job_id)
            for job in self._visible()
            if job.finished_at_ms is not None and job.finished_at_ms < op.now_ms - op.age_ms
        )
        return [job_id for _, job_id in begun + old]

    def _sweep(self, op: Sweep, answer: Swept) -> Told:
        """Do as much as is said to have been done, as far as that is allowed.

        Whole jobs in their order, and then perhaps a part of the next one, which is hidden.
        """
        turn = self.sweep_turn(op)
        whole, rest = turn[: min(answer.jobs_deleted, op.max_jobs)], answer.events_deleted
        for job_id in whole:
            rest -= len(self.jobs.pop(job_id).events)
        partly = turn[len(whole) :][:1]
        taken = min(rest, EVENTS_MAX, *(len(self.jobs[job_id].events) for job_id in partly))
        if partly and taken > 0:
            job = self.jobs[partly[0]]
            job.receipt = None
            if job.hidden_at_ms is None:
                job.hidden_at_ms = op.now_ms
            del job.events[-taken:]
            rest -= taken
        elif turn and not whole:
            return ("Swept", "something")
        more = any(job_id in self.jobs for job_id in turn)
        return ("Swept", len(whole), answer.events_deleted - rest, more)

    def differences(self, store: Store) -> list[str]:
        """Return in what the store's own answers differ from what they should be."""
        found: list[str] = []

        def same(what: str, stored: object, wanted: object) -> None:
            if stored != wanted:
                found.append(f"{what}: {stored!r}, not {wanted!r}")

        with store.reader() as read:
            for tenant in sorted({job.accept.tenant for job in self.jobs.values()}):
                mine = {
                    job.accept.job_id: job.status
                    for job in self._visible()
                    if job.accept.tenant == tenant
                }
                listed = {row.job_id: row.status for row in read.list_jobs(tenant, 501)}
                same(f"jobs of {tenant}", listed, mine)
                same(f"charge of {tenant}", read.charged_bytes(tenant), self.charged(tenant))
            same("jobs", len(read.list_jobs(None, 501)), len(self._visible()))
            same("charge", read.charged_bytes(), self.charged())
            for job_id, job in self.jobs.items():
                same(f"bytes of {job_id}", read.retained_bytes(job_id), job.retained())
                events = read.events_after(job_id, 0, 5000)
                shown = [(event.kind, _plain(event.data)) for event in events]
                wanted = [(event.kind, _plain(event.data)) for event in job.events]
                same(f"events of {job_id}", shown, wanted)
                same(f"chain of {job_id}", check_chain(job_id, events).complete, True)
                row = read.summary(None, job_id)
                if job.hidden_at_ms is not None:
                    same(f"hidden {job_id}", row, None)
                    continue
                times = None if row is None else (row.started_at_ms, row.finished_at_ms)
                same(f"times of {job_id}", times, (job.started_at_ms, job.finished_at_ms))
                outbox = read.outbox(job_id)
                code = None if outbox is None else outbox.failure_code or ""
                same(f"outbox of {job_id}", code, job.outbox)
                signed = read.attestation(job.accept.tenant, job_id)
                same(f"signed {job_id}", signed is not None, job.attestation is not None)
                if job.key is not None:
                    key = read.find_key(job.accept.tenant, job.key)
                    same(f"key of {job_id}", None if key is None else key.job_id, job_id)
        return found


def _start(job: ModelJob, op: Start) -> Told:
    before = job.retained()
    job.status, job.started_at_ms = "running", op.now_ms
    needs = msgspec.convert(job.accept.spec["requirements"], Requirements)
    job.effective = canonical(placeholder_spec(needs))
    job.add("started", {"status": "running", "initial_effective_spec_sha256": HASH})
    job.reserved = max(20 * MIB, job.reserved - (job.retained() - before))
    return ("Started", len(job.events))


def _ending(op: Any, status: str, receipt: dict[str, Any], duration_ms: int) -> Finalise:
    return Finalise(
        job_id=op.job_id,
        status=status,  # type: ignore[arg-type]
        exit_code=None,
        now_ms=op.now_ms,
        duration_ms=duration_ms,
        receipt=receipt,
        reason="server_restarted" if isinstance(op, RecoverRunning) else None,
    )


def _end(job: ModelJob, op: Finalise) -> Told:
    data: dict[str, Any] = {
        "status": str(op.status),
        "exit_code": op.exit_code,
        "duration_ms": op.duration_ms,
    }
    if op.effective_spec is not None:
        data["effective_spec_sha256"] = HASH
        job.effective = canonical(op.effective_spec)
    if op.reason is not None:
        data["reason"] = op.reason
    for kind, said in (*op.events, ("finished", data)):
        job.add(kind, said)
    job.status, job.finished_at_ms = str(op.status), op.now_ms
    job.outbox, job.reserved = "", 20 * MIB
    receipt = op.receipt if isinstance(op.receipt, dict) else {"details": op.receipt}
    total = len(job.events)
    core = {
        "version": 1,
        "job_id": op.job_id,
        "outcome": job.status,
        "exit_code": op.exit_code,
        "created_at_ms": job.accept.now_ms,
        "started_at_ms": job.started_at_ms,
        "finished_at_ms": op.now_ms,
        "duration_ms": op.duration_ms,
        "event_chain": {
            "version": 1,
            "head": HASH,
            "events": total,
            "event_count": total,
            "verified_events": total,
            "legacy_events": 0,
            "complete": True,
        },
        "receipt_sha256": HASH,
    }
    job.receipt = canonical({**receipt, **core})
    return ("Finalised", total)


def _persist(op: PersistAttestation, job: ModelJob | None) -> Told:
    if job is None or not job.over or job.accept.tenant != op.tenant:
        return ("stale_receipt",)
    if job.attestation is not None:
        if job.attestation.envelope != op.envelope:
            return ("refused", "attestation_immutable")
        return ("existing",)
    job.attestation, job.outbox, job.reserved = op, None, 0
    return ("created",)


def _without_signature(
    op: DeferAttestation | WaiveAttestation | FailAttestation, job: ModelJob | None
) -> Told:
    if job is None or job.outbox != "":
        return (False,)
    if isinstance(op, WaiveAttestation):
        job.outbox, job.reserved = None, 0
    elif isinstance(op, FailAttestation):
        job.outbox, job.reserved = op.code, 0
    return (True,)


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """Return event data with every digest alike, since the model makes none."""
    return {name: HASH if name.endswith("_sha256") else value for name, value in data.items()}
