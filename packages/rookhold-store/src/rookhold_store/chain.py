"""Linking new events to a job's chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rookhold_store.accounting import event_bytes
from rookhold_store.errors import InvalidOperationError
from rookhold_types.canonical import canonical
from rookhold_types.events import HASH_VERSION, EventKind, WireEvent, event_hashes
from rookhold_types.limits import EVENT_BATCH_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

# Joined to a job `j`: the last event of its chain, so that one statement tells of both.
HEAD_COLUMNS: Final = "head.seq, head.event_hash"
HEAD_JOIN: Final = """
LEFT JOIN events head ON head.job_id = j.job_id
AND head.seq = (SELECT max(seq) FROM events WHERE job_id = j.job_id)
"""
_INSERT: Final = """
INSERT INTO events (job_id, seq, ts_ms, kind, data_json, prev_hash, event_hash, hash_version)
VALUES """
_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?)"
_COLUMNS: Final = _ROW.count("?")
# Between two statements the writer may have to wait for the interpreter. Statements for so many
# rows, and for each number below, are few enough to stay prepared.
_ROWS_MAX: Final = 32
_INSERTS: Final = tuple(_INSERT + ", ".join([_ROW] * rows) for rows in range(_ROWS_MAX + 1))
_RESERVED_KINDS: Final = frozenset(
    {EventKind.ACCEPTED.value, EventKind.STARTED.value, EventKind.FINISHED.value}
)


class Head(NamedTuple):
    """Where a chain stands: its last `seq`, and the hash to link to ('' after a legacy event)."""

    seq: int
    hash: str


GENESIS: Final = Head(0, "")


class Draft(NamedTuple):
    """An event before its place in the chain is known; its JSON is made only once."""

    kind: str
    data: dict[str, Any]
    data_json: bytes
    text: str  # the same, as a statement takes it


class Linked(NamedTuple):
    """Events with their places: as rows, as others will see them, where they lead, their charge."""

    values: list[Any]  # those of all rows in one, as a statement takes them
    events: tuple[WireEvent, ...]
    head: Head
    retained_bytes: int


def draft(kind: str, data: dict[str, Any]) -> Draft:
    """Prepare an event; raises CanonicalError for data that has no canonical JSON."""
    data_json = canonical(data)
    return Draft(kind, data, data_json, data_json.decode())


def drafts(events: Sequence[tuple[str, dict[str, Any]]]) -> list[Draft]:
    """Prepare a batch of events that somebody else than the store has to tell."""
    if len(events) > EVENT_BATCH_MAX:
        raise InvalidOperationError("the batch is too large", events=len(events))
    kinds = {kind for kind, _ in events}
    if kinds & _RESERVED_KINDS:
        raise InvalidOperationError("an event of this kind is written by its own operation")
    if not all(kind.strip() for kind in kinds):
        raise InvalidOperationError("an event kind is blank")
    return [draft(kind, data) for kind, data in events]


def head(seq: int | None, event_hash: str | None) -> Head:
    """Return the head of a job's chain from the columns that HEAD_JOIN adds."""
    return GENESIS if seq is None or event_hash is None else Head(seq, event_hash)


def link(job_id: str, after: Head, drafts: Sequence[Draft], ts_ms: int) -> Linked:
    """Give `drafts` their places after `after`; pure, so that a first event needs no database."""
    seq, previous = after
    hashes = event_hashes(
        job_id, previous, seq + 1, ts_ms, [(kind, data_json) for kind, _, data_json, _ in drafts]
    )
    values: list[Any] = []
    events: list[WireEvent] = []
    retained = 0
    for (kind, data, data_json, text), digest in zip(drafts, hashes, strict=True):
        seq += 1
        values += (job_id, seq, ts_ms, kind, text, previous, digest, HASH_VERSION)
        events.append(
            WireEvent(
                seq=seq,
                ts_ms=ts_ms,
                kind=kind,
                data=data,
                prev_hash=previous,
                event_hash=digest,
                hash_version=HASH_VERSION,
            )
        )
        retained += event_bytes(kind, data_json, previous, digest)
        previous = digest
    return Linked(values, tuple(events), Head(seq, previous), retained)


def write(db: apsw.Connection, linked: Linked) -> None:
    """Insert linked events, in the caller's transaction."""
    values = linked.values
    for first in range(0, len(values), _ROWS_MAX * _COLUMNS):
        some = values[first : first + _ROWS_MAX * _COLUMNS]
        db.execute(_INSERTS[len(some) // _COLUMNS], some)
