"""Jobs for tests: the shortest way to a store with something in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apsw

from rookhold_store.operations import (
    Accept,
    Accepted,
    Append,
    Finalise,
    Finalised,
    PersistAttestation,
    Replayed,
    Start,
    Started,
)
from rookhold_types.ids import new_job_id
from rookhold_types.jobs import JobSpec, fingerprint
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rookhold_store.operations import Participant
    from rookhold_store.store import Store
    from rookhold_types.events import WireEvent


class TickingClock:
    """A clock that moves by itself, one millisecond a look."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        self.now_ms += 1
        return self.now_ms


class Jobs:
    """Moves jobs through their lives with as few words as a test needs."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def acceptance(
        self,
        *,
        tenant: str = "acme",
        spec: JobSpec | None = None,
        key: str | None = None,
        job_id: str | None = None,
        memory: int = 256,
        participants: Sequence[Participant] = (),
    ) -> Accept:
        """Return the message that accepts one job; its id is new unless given."""
        spec = spec or JobSpec(language="python", code="print(6*7)")
        return Accept(
            job_id=job_id or new_job_id(),
            tenant=tenant,
            language=spec.language,
            spec=spec.stored(),
            admitted_mem_mb=memory,
            now_ms=self.store.clock(),
            fingerprint=fingerprint(spec),
            idempotency_key=key,
            participants=participants,
        )

    def submit(self, op: Accept) -> Accepted | Replayed:
        return self.store.call(op)

    def accept(self, **values: Any) -> str:
        """Accept a job and return its id."""
        op = self.acceptance(**values)
        self.store.call(op)
        return op.job_id

    def start(self, job_id: str) -> Started | None:
        return self.store.call(Start(job_id=job_id, now_ms=self.store.clock()))

    def running(self, **values: Any) -> str:
        """Accept and start a job and return its id."""
        job_id = self.accept(**values)
        self.start(job_id)
        return job_id

    def append(self, job_id: str, *lines: str) -> tuple[WireEvent, ...]:
        """Append one standard-output record for each line."""
        events = [("stdout", {"line": line, "eol": True}) for line in lines]
        return self.store.call(Append(job_id=job_id, events=events, now_ms=self.store.clock()))

    def finalise(
        self,
        job_id: str,
        *,
        status: JobStatus = JobStatus.SUCCEEDED,
        exit_code: int | None = 0,
        receipt: Any = None,
        effective_spec: dict[str, Any] | None = None,
        participants: Sequence[Participant] = (),
    ) -> Finalised | None:
        return self.store.call(
            Finalise(
                job_id=job_id,
                status=status,
                exit_code=exit_code,
                now_ms=self.store.clock(),
                duration_ms=7,
                receipt={"killed_by": None} if receipt is None else receipt,
                effective_spec=effective_spec,
                participants=participants,
            )
        )

    def finished(self, **values: Any) -> str:
        """Take a job from acceptance to its end and return its id."""
        job_id = self.running(**values)
        self.append(job_id, "42")
        self.finalise(job_id)
        return job_id

    def attestation(self, job_id: str, **changes: Any) -> PersistAttestation:
        """Return the message that stores some bytes as the attestation of a finished job."""
        row = self.store.read.get(None, job_id)
        if row is None:
            raise LookupError(job_id)
        values: dict[str, Any] = {
            "job_id": job_id,
            "tenant": row.tenant,
            "receipt_json": row.receipt_json or "",
            "result_media_type": "application/json",
            "result_artifact": b"artifact of " + job_id.encode(),
            "envelope": b"envelope of " + job_id.encode(),
            "key_id": "key-1",
            "now_ms": self.store.clock(),
        }
        return PersistAttestation(**{**values, **changes})


def anything_binds(**_: object) -> bool:
    """A binding check for tests that are not about binding."""
    return True


def tampering_connection(path: Path) -> apsw.Connection:
    """Open a connection of one's own on a store's file, as somebody with ordinary SQL would."""
    db = apsw.Connection(str(path))
    db.set_busy_timeout(5000)
    db.execute("PRAGMA foreign_keys = ON")
    return db
