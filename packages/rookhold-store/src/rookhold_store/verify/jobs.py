"""A job's row against its own history: what the events told must be what the row says."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from rookhold_store.verify.tables import JOBS
from rookhold_types.canonical import canonical
from rookhold_types.errors import CanonicalError
from rookhold_types.events import EventKind
from rookhold_types.limits import LIMIT_BOUNDS
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rookhold_store.verify.cells import Complaint
    from rookhold_store.verify.history import History, Told

_UNFINISHED: Final = (JobStatus.QUEUED, JobStatus.RUNNING)


class Job(NamedTuple):
    """One row of `jobs`; any value may be of any type."""

    job_id: Any
    tenant: Any
    language: Any
    status: Any
    admitted_mem_mb: Any
    created_at_ms: Any
    started_at_ms: Any
    finished_at_ms: Any
    exit_code: Any
    spec_json: Any
    effective_spec_json: Any
    receipt_json: Any

    @property
    def terminal(self) -> bool:
        return self.status not in _UNFINISHED


def sha256(value: object) -> str | None:
    """Return the digest of a stored text; None for what is no text."""
    return hashlib.sha256(value.encode()).hexdigest() if type(value) is str else None


def complaints(job: Job, history: History, *, hidden: bool, migrated: bool) -> Iterator[Complaint]:
    """Yield what is wrong with the row; `hidden` for a job whose removal has begun.

    `migrated` for a file that an older store made: only there may events lack hashes.
    """
    broken = JOBS.complaints(job)
    yield from broken
    wrong = {column for column, _ in broken}
    for column, problem in _against_events(job, history, hidden=hidden, migrated=migrated):
        if column not in wrong:
            yield column, problem


def _against_events(
    job: Job, history: History, *, hidden: bool, migrated: bool
) -> Iterator[Complaint]:
    accepted = history.told.get(EventKind.ACCEPTED.value)
    started = history.told.get(EventKind.STARTED.value)
    finished = history.told.get(EventKind.FINISHED.value)
    if not history.events and not migrated and not hidden:
        yield "job_id", "has no events"
    if history.legacy and not migrated:
        yield "job_id", "has events without hashes in a file that was made with hashes"
    if accepted is not None and accepted.hashed:
        yield from _as_accepted(job, accepted)
        if not job.terminal and job.exit_code is not None:  # a step keeps one of before the hashes
            yield "exit_code", "is set for a job that has not ended"
    # An older store may have kept no history of a job, or one that says little.
    legacy = bool(history.legacy) or (migrated and accepted is None)
    if hidden and finished is None:  # the newest events went first, and perhaps all of them
        if started is not None:
            yield from _as_started(job, started, legacy=legacy)
        return
    yield from _as_started(job, started, legacy=legacy)
    if history.legacy < history.events:
        yield from _as_finished(job, finished)
        yield from _effective(job, started, finished, legacy=legacy)


def _as_accepted(job: Job, accepted: Told) -> Iterator[Complaint]:
    said = accepted.data
    for column, value, wanted in (
        ("tenant", job.tenant, said.get("tenant")),
        ("language", job.language, said.get("language")),
        ("created_at_ms", job.created_at_ms, accepted.ts_ms),
    ):
        if value != wanted:
            yield column, "is not what the accepted event says"
    digest = said.get("requested_spec_sha256")
    if sha256(job.spec_json) != digest:
        yield "spec_json", "does not have the digest that the accepted event says"
    elif not _canonical(job.spec_json):
        yield "spec_json", "is not canonical JSON"
    else:
        yield from _memory(job)


def _memory(job: Job) -> Iterator[Complaint]:
    """A server's own ceiling may have lowered what was admitted; nothing may have raised it."""
    try:
        asked = msgspec.json.decode(job.spec_json)["limits"]["mem_mb"]
    except (KeyError, TypeError, msgspec.DecodeError, RecursionError):
        return
    if type(asked) is int and type(job.admitted_mem_mb) is int:
        most = LIMIT_BOUNDS["mem_mb"].clamp(asked)
        if job.admitted_mem_mb > most:
            yield "admitted_mem_mb", f"is {job.admitted_mem_mb}, more than the spec asks for"


def _canonical(text: object) -> bool:
    try:
        return type(text) is str and canonical(msgspec.json.decode(text)) == text.encode()
    except (CanonicalError, msgspec.DecodeError, RecursionError, UnicodeError):
        return False


def _as_started(job: Job, started: Told | None, *, legacy: bool) -> Iterator[Complaint]:
    if started is None:
        if job.status == JobStatus.RUNNING and not legacy:
            yield "status", "is running, but no event says that it started"
        elif job.started_at_ms is not None and not legacy:
            yield "started_at_ms", "is set, but no event says that the job started"
        return
    if not started.hashed:
        return
    if job.status == JobStatus.QUEUED:
        yield "status", "is queued, but an event says that it started"
    elif job.started_at_ms != started.ts_ms:
        yield "started_at_ms", "is not the time of the started event"


def _as_finished(job: Job, finished: Told | None) -> Iterator[Complaint]:
    if finished is None:
        if job.terminal:
            yield "status", f"is {job.status}, but no event says that the job finished"
        return
    if not job.terminal:
        yield "status", f"is {job.status}, but an event says that the job finished"
        return
    if job.status != finished.data.get("status"):
        yield "status", f"is {job.status}, but the finished event says another"
    if job.exit_code != finished.data.get("exit_code"):
        yield "exit_code", "is not what the finished event says"
    if job.finished_at_ms != finished.ts_ms:
        yield "finished_at_ms", "is not the time of the finished event"


def _effective(
    job: Job, started: Told | None, finished: Told | None, *, legacy: bool
) -> Iterator[Complaint]:
    """The spec in force: the observed one from the end, else the placeholder from the start."""
    if finished is not None and "effective_spec_sha256" in finished.data:
        wanted, event = finished.data["effective_spec_sha256"], EventKind.FINISHED
    elif legacy:
        return  # an older store may have left anything there
    elif started is not None:
        wanted, event = started.data.get("initial_effective_spec_sha256"), EventKind.STARTED
    else:
        wanted, event = None, EventKind.ACCEPTED
    if sha256(job.effective_spec_json) == wanted:
        return
    if wanted is None:
        yield "effective_spec_json", "is set, but no event tells of it"
    else:
        yield "effective_spec_json", f"does not have the digest that the {event.value} event says"
