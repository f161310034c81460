"""Accepting a job: its row, its first event, its account and its key, or none of them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from rookhold_store import chain
from rookhold_store.accounting import RESERVE_ACCEPTED, open_account, row_bytes
from rookhold_store.errors import IdempotencyConflictError, InvalidOperationError
from rookhold_store.operations import Accept, Accepted, Participation, Replayed
from rookhold_types.canonical import canonical
from rookhold_types.events import EventKind
from rookhold_types.ids import valid_idempotency_key
from rookhold_types.limits import LIMIT_BOUNDS
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    import apsw

    from rookhold_store.quota import Quota

TEXT_MAX: Final = 128  # characters of an id, tenant or language
_MEM_MB: Final = LIMIT_BOUNDS["mem_mb"]

_FIND_KEY: Final = """
SELECT request_sha256, job_id FROM idempotency_keys WHERE tenant = ? AND idempotency_key = ?
"""
_INSERT_JOB: Final = """
INSERT INTO jobs (job_id, tenant, language, status, admitted_mem_mb, created_at_ms, spec_json)
VALUES (?, ?, ?, 'queued', ?, ?, ?)
"""
_INSERT_KEY: Final = """
INSERT INTO idempotency_keys (tenant, idempotency_key, request_sha256, job_id, created_at_ms)
VALUES (?, ?, ?, ?, ?)
"""


class PreparedAccept:
    """All of an acceptance that does not depend on what is stored; the fate of its key does."""

    def __init__(self, op: Accept, quota: Quota) -> None:
        _check(op)
        spec_json = canonical(op.spec)
        digest = hashlib.sha256(spec_json).hexdigest()
        if digest != op.fingerprint:
            raise InvalidOperationError("the fingerprint is not the digest of the spec")
        data = {
            "status": JobStatus.QUEUED.value,
            "tenant": op.tenant,
            "language": op.language,
            "requested_spec_sha256": digest,
        }
        self._op = op
        self._quota = quota
        self._spec_json = spec_json.decode()
        self._linked = chain.link(
            op.job_id, chain.GENESIS, [chain.draft(EventKind.ACCEPTED.value, data)], op.now_ms
        )
        self._retained = (
            row_bytes(op.job_id, op.tenant, op.language, JobStatus.QUEUED.value, spec_json)
            + self._linked.retained_bytes
        )
        if op.idempotency_key is not None:
            self._retained += row_bytes(op.tenant, op.idempotency_key, digest, op.job_id)
        self.size = self._retained

    def run(self, db: apsw.Connection) -> Accepted | Replayed:
        op = self._op
        if op.idempotency_key is not None:
            known = db.execute(_FIND_KEY, (op.tenant, op.idempotency_key)).get
            if known is not None:
                return _replay(known, op.fingerprint)
        self._quota.admit(op.tenant, self._retained + RESERVE_ACCEPTED)
        db.execute(
            _INSERT_JOB,
            (op.job_id, op.tenant, op.language, op.admitted_mem_mb, op.now_ms, self._spec_json),
        )
        chain.write(db, self._linked)
        open_account(db, op.job_id, op.tenant, self._retained, op.admitted_mem_mb)
        if op.idempotency_key is not None:
            db.execute(
                _INSERT_KEY, (op.tenant, op.idempotency_key, op.fingerprint, op.job_id, op.now_ms)
            )
        event = self._linked.events[0]
        if op.participants:
            context = Participation(
                job_id=op.job_id,
                tenant=op.tenant,
                now_ms=op.now_ms,
                status=JobStatus.QUEUED,
                event=event,
            )
            for participant in op.participants:
                participant.apply(db, context)
        return Accepted(event=event, created_at_ms=op.now_ms)


def _replay(known: tuple[str, str], fingerprint: str) -> Replayed:
    digest, job_id = known
    if digest != fingerprint:
        raise IdempotencyConflictError("the key was used for a different request")
    return Replayed(job_id=job_id)


def _check(op: Accept) -> None:
    for name in ("job_id", "tenant", "language"):
        text = getattr(op, name)
        if not isinstance(text, str) or not text.strip() or len(text) > TEXT_MAX:
            raise InvalidOperationError(f"{name} is blank or too long")
    if not _MEM_MB.floor <= op.admitted_mem_mb <= _MEM_MB.ceiling:
        raise InvalidOperationError(
            "the admitted memory is out of range", mem_mb=op.admitted_mem_mb
        )
    if op.now_ms < 0:
        raise InvalidOperationError("the time is before 1970")
    if op.idempotency_key is not None and not valid_idempotency_key(op.idempotency_key):
        raise InvalidOperationError("the idempotency key has another form")
    if not isinstance(op.spec, dict):
        raise InvalidOperationError("the spec is not an object")
