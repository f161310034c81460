"""A job under way: its start, and the events that its run adds."""

# ruff: noqa: S608  # statements are made of constants alone; values are bindings

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from rookhold_store import chain
from rookhold_store.accounting import grow
from rookhold_store.errors import JobEndedError, JobNotFoundError
from rookhold_store.operations import Append, Start, Started
from rookhold_store.quota import is_of_the_job
from rookhold_types.canonical import canonical
from rookhold_types.events import EventKind, WireEvent
from rookhold_types.jobs import Requirements
from rookhold_types.receipts import placeholder_spec
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    import apsw

    from rookhold_store.quota import Quota

# A spec may fill megabytes; SQLite picks the one member out without handing the whole to Python.
_QUEUED: Final = f"""
SELECT CASE json_type(j.spec_json, '$.requirements') WHEN 'object'
  THEN json_extract(j.spec_json, '$.requirements') END,
  coalesce(octet_length(j.effective_spec_json), 0), {chain.HEAD_COLUMNS}
FROM jobs j {chain.HEAD_JOIN} WHERE j.job_id = ? AND j.status = 'queued'
"""
_START: Final = """
UPDATE jobs SET status = 'running', started_at_ms = ?, effective_spec_json = ? WHERE job_id = ?
"""
_STATUS: Final = f"""
SELECT j.status, {chain.HEAD_COLUMNS} FROM jobs j INDEXED BY jobs_by_id {chain.HEAD_JOIN}
WHERE j.job_id = ?
AND NOT EXISTS (SELECT 1 FROM retention_tombstones t WHERE t.job_id = j.job_id)
"""
_STATUS_GROWTH: Final = len(JobStatus.RUNNING.value) - len(JobStatus.QUEUED.value)


class PreparedStart:
    """The start of a queued job."""

    size = 1024

    def __init__(self, op: Start) -> None:
        self._op = op

    def run(self, db: apsw.Connection) -> Started | None:
        op = self._op
        row = db.execute(_QUEUED, (op.job_id,)).get
        if row is None:
            return None
        requirements, replaced, *head = row  # an older store may have left a spec in force
        text = canonical(placeholder_spec(_requirements(requirements)))
        started = chain.draft(
            EventKind.STARTED.value,
            {
                "status": JobStatus.RUNNING.value,
                "initial_effective_spec_sha256": hashlib.sha256(text).hexdigest(),
            },
        )
        linked = chain.link(op.job_id, chain.head(*head), [started], op.now_ms)
        chain.write(db, linked)
        db.execute(_START, (op.now_ms, text.decode(), op.job_id))
        grow(db, op.job_id, linked.retained_bytes + len(text) - replaced + _STATUS_GROWTH)
        return Started(event=linked.events[0])


def _requirements(text: str | None) -> Requirements:
    """Decode stored requirements; a spec of an older store may have none that decode."""
    try:
        return Requirements() if text is None else msgspec.json.decode(text, type=Requirements)
    except msgspec.MsgspecError:
        return Requirements()


class PreparedAppend:
    """A batch of events whose JSON is made and whose places are not known yet."""

    def __init__(self, op: Append, quota: Quota) -> None:
        self._op = op
        self._drafts = chain.drafts(op.events)
        self._quota = quota if is_of_the_job(draft.kind for draft in self._drafts) else None
        self.size = sum(len(item.data_json) for item in self._drafts)

    def run(self, db: apsw.Connection) -> tuple[WireEvent, ...]:
        op = self._op
        if not self._drafts:
            return ()
        row = db.execute(_STATUS, (op.job_id,)).get
        if row is None:
            raise JobNotFoundError("there is no such job")
        status, *head = row
        if status not in (JobStatus.QUEUED, JobStatus.RUNNING):
            raise JobEndedError("the job has ended")
        linked = chain.link(op.job_id, chain.head(*head), self._drafts, op.now_ms)
        if self._quota is not None:
            self._quota.check_growth(op.job_id, linked.retained_bytes)
        chain.write(db, linked)
        grow(db, op.job_id, linked.retained_bytes)
        return linked.events
