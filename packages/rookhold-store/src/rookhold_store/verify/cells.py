"""The rules of each column, asked of the stored values and not of the schema beside them.

A CHECK says only that a row was good when it was written through SQL with the check in place. These
are the same rules again, so that whoever took the checks away, or wrote to the pages, is found.
"""

# ruff: noqa: S608  # statements are made of constants of this module alone; values are bindings

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from rookhold_types.limits import LIMIT_BOUNDS
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    import apsw

Rule = Callable[[Any], str | None]
Complaint = tuple[str, str]  # column and problem

_BLANKS: Final = "\t\n\v\f\r "
_HEX64: Final = re.compile(r"[0-9a-f]{64}")
_KEY: Final = re.compile(r"[!-~]{1,128}")
_NAMES: Final = {int: "an integer", str: "a text", bytes: "a blob"}
_MEM_MB: Final = LIMIT_BOUNDS["mem_mb"]


class Undecodable(bytes):
    """A stored text that is not UTF-8."""


class Column(NamedTuple):
    name: str
    type: type
    rule: Rule | None = None
    null: bool = False


class Table(NamedTuple):
    """One table: its columns in reading order, and what must hold between them."""

    name: str
    columns: tuple[Column, ...]
    across: Callable[[Any], Complaint | None] | None = None

    def rows(
        self, db: apsw.Connection, where: str, bindings: Sequence[Any] = ()
    ) -> Generator[tuple[Any, ...], None, None]:
        """Yield the rows, a value of each column; what does not decode comes as `Undecodable`.

        The type that SQLite stored is the type that arrives, so that it can be judged here.
        """
        given = 0
        try:
            for row in db.execute(f"{_SELECT[self.name]} {where}", bindings):
                given += 1
                yield row
        except UnicodeDecodeError:
            rows = db.execute(f"{_SELECT_RAW[self.name]} {where}", bindings)
            for row in islice(rows, given, None):
                yield _decoded(row, len(self.columns))

    def complaints(self, row: tuple[Any, ...]) -> list[Complaint]:
        """Return each column that breaks its own rule, and else the rule between them."""
        found: list[Complaint] = []
        for column, value in zip(self.columns, row, strict=True):
            if value is None:
                if not column.null:
                    found.append((column.name, "is null"))
            elif value.__class__ is not column.type:
                found.append((column.name, _wrong_type(value, column.type)))
            elif column.rule is not None and (problem := column.rule(value)) is not None:
                found.append((column.name, problem))
        if not found and self.across is not None and (between := self.across(row)) is not None:
            found.append(between)
        return found


def _decoded(row: tuple[Any, ...], width: int) -> tuple[Any, ...]:
    values: list[Any] = []
    for place in range(width):
        is_text, raw = row[2 * place], row[2 * place + 1]
        if not is_text:
            values.append(row[2 * width + place])
            continue
        try:
            values.append(raw.decode())
        except UnicodeDecodeError:
            values.append(Undecodable(raw))
    return tuple(values)


def _wrong_type(value: object, wanted: type) -> str:
    if isinstance(value, Undecodable):
        return "is not UTF-8"
    return f"is {_NAMES.get(type(value), 'another number')}, not {_NAMES[wanted]}"


def is_json(text: str) -> bool:
    """Whether `text` is JSON; old rows may hold such as only SQLite's own grammar takes."""
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return _sqlite_takes(text)
    return True


def _sqlite_takes(text: str) -> bool:
    import apsw  # only for rows that no writer of ours made

    try:
        return bool(apsw.Connection(":memory:").execute("SELECT json_valid(?)", (text,)).get)
    except (apsw.Error, UnicodeError):
        return False


def _json(text: str) -> str | None:
    return None if is_json(text) else "is not JSON"


def _said(text: str) -> str | None:
    return None if text.strip(_BLANKS) else "is blank"


def _hex64(text: str) -> str | None:
    return None if _HEX64.fullmatch(text) else "is not 64 lowercase hexadecimal digits"


def _link(text: str) -> str | None:
    return None if not text or _HEX64.fullmatch(text) else "is neither empty nor a SHA-256"


def _key(text: str) -> str | None:
    return None if _KEY.fullmatch(text) else "is no idempotency key"


def _between(low: int, high: int) -> Rule:
    def rule(value: int) -> str | None:
        return None if low <= value <= high else f"is {value}, outside {low}..{high}"

    return rule


def _long(low: int, high: int) -> Rule:
    def rule(value: str | bytes) -> str | None:
        size = len(value)
        return None if low <= size <= high else f"has a length of {size}, outside {low}..{high}"

    return rule


def _not_negative(value: int) -> str | None:
    return None if value >= 0 else f"is {value}, below 0"


def _status(value: str) -> str | None:
    return None if value in JobStatus.__members__.values() else "is no status"


def _job_times(row: Any) -> Complaint | None:
    status, started, finished = row[3], row[6], row[7]
    if status == JobStatus.QUEUED:
        if started is not None:
            return "started_at_ms", "is set for a job that is queued"
        return None if finished is None else ("finished_at_ms", "is set for a job that is queued")
    if status == JobStatus.RUNNING:
        if started is None:
            return "started_at_ms", "is null for a job that is running"
        return None if finished is None else ("finished_at_ms", "is set for a job that is running")
    return None if finished is not None else ("finished_at_ms", "is null for a job that has ended")


def _event_hashes(row: Any) -> Complaint | None:
    prev_hash, event_hash, version = row[5:8]
    if version == 0:
        if prev_hash:
            return "prev_hash", "is set for an event of before the hashes"
        return ("event_hash", "is set for an event of before the hashes") if event_hash else None
    return None if event_hash else ("event_hash", "is empty")


def _waiver(row: Any) -> Complaint | None:
    failed, code, profile = row[4:7]
    if (failed is None) != (code is None):
        return "failure_code", "does not agree with failed_at_ms"
    if (failed is None) != (profile is None):
        return "failure_profile", "does not agree with failed_at_ms"
    return None


JOBS: Final = Table(
    "jobs",
    (
        Column("job_id", str, _said),
        Column("tenant", str, _said),
        Column("language", str, _said),
        Column("status", str, _status),
        Column("admitted_mem_mb", int, _between(_MEM_MB.floor, _MEM_MB.ceiling)),
        Column("created_at_ms", int, _not_negative),
        Column("started_at_ms", int, _not_negative, null=True),
        Column("finished_at_ms", int, _not_negative, null=True),
        Column("exit_code", int, _between(-(2**31), 2**31 - 1), null=True),
        Column("spec_json", str, _json),
        Column("effective_spec_json", str, _json, null=True),
        Column("receipt_json", str, _json, null=True),
    ),
    _job_times,
)
EVENTS: Final = Table(
    "events",
    (
        Column("job_id", str, _said),
        Column("seq", int, _between(1, 2**63 - 1)),
        Column("ts_ms", int, _not_negative),
        Column("kind", str, _said),
        Column("data_json", str),  # its JSON is decoded, and so judged, where the chain is followed
        Column("prev_hash", str, _link),
        Column("event_hash", str, _link),
        Column("hash_version", int, _between(0, 1)),
    ),
    _event_hashes,
)
ATTESTATIONS: Final = Table(
    "job_attestations",
    (
        Column("job_id", str, _said),
        Column("created_at_ms", int, _not_negative),
        Column("key_id", str, _long(1, 256)),
        Column("receipt_sha256", str, _hex64),
        Column("result_media_type", str, _long(1, 255)),
        Column("result_sha256", str, _hex64),
        Column("envelope_sha256", str, _hex64),
        Column("result_artifact", bytes, _long(1, 16 * 1024 * 1024)),
        Column("envelope_json", bytes, _long(1, 2 * 1024 * 1024)),
    ),
)
QUARANTINE: Final = Table(
    "attestation_quarantine",
    (
        Column("job_id", str, _said),
        Column("at_ms", int, _not_negative),
        Column("reason", str, _said),
        Column("result_sha256", str, _hex64),
        Column("envelope_sha256", str, _hex64),
        Column("result_artifact", bytes, _long(1, 16 * 1024 * 1024)),
        Column("envelope_json", bytes, _long(1, 2 * 1024 * 1024)),
    ),
)
OUTBOX: Final = Table(
    "attestation_outbox",
    (
        Column("job_id", str, _said),
        Column("pending_since_ms", int, _not_negative),
        Column("attempt_count", int, _not_negative),
        Column("next_attempt_ms", int, _not_negative),
        Column("failed_at_ms", int, _not_negative, null=True),
        Column("failure_code", str, _said, null=True),
        Column("failure_profile", str, _said, null=True),
    ),
    _waiver,
)
KEYS: Final = Table(
    "idempotency_keys",
    (
        Column("tenant", str, _said),
        Column("idempotency_key", str, _key),
        Column("request_sha256", str, _hex64),
        Column("job_id", str, _said),
        Column("created_at_ms", int, _not_negative),
    ),
)
LEDGER: Final = Table(
    "job_storage_usage",
    (
        Column("job_id", str, _said),
        Column("tenant", str, _said),
        Column("retained_bytes", int, _not_negative),
        Column("reserved_bytes", int, _not_negative),
        Column("requested_mem_mb", int, _between(_MEM_MB.floor, _MEM_MB.ceiling)),
    ),
)
TOMBSTONES: Final = Table(
    "retention_tombstones",
    (Column("job_id", str, _said), Column("marked_at_ms", int, _not_negative)),
)
TENANT_SUMS: Final = Table(
    "tenant_storage_usage",
    (Column("tenant", str, _said), Column("charged_bytes", int, _not_negative)),
)
TOTAL: Final = Table(
    "storage_usage_total",
    (Column("id", int, _between(1, 1)), Column("charged_bytes", int, _not_negative)),
)
META: Final = Table(
    "store_meta",
    (Column("id", int, _between(1, 1)), Column("accounting_revision", int, _between(1, 2))),
)
HISTORY: Final = Table(
    "schema_migrations",
    (Column("version", int, _between(1, 4)), Column("applied_at_ms", int, _not_negative)),
)
TABLES: Final = (
    JOBS,
    EVENTS,
    ATTESTATIONS,
    QUARANTINE,
    OUTBOX,
    KEYS,
    LEDGER,
    TOMBSTONES,
    TENANT_SUMS,
    TOTAL,
    META,
    HISTORY,
)


def _select(table: Table) -> str:
    return f"SELECT {', '.join(column.name for column in table.columns)} FROM {table.name}"


def _select_raw(table: Table) -> str:
    """Return the statement that no text can fail: each as bytes, then what is no text."""
    names = [column.name for column in table.columns]
    raw = ", ".join(f"typeof({name}) = 'text', CAST({name} AS BLOB)" for name in names)
    plain = ", ".join(f"CASE typeof({n}) WHEN 'text' THEN NULL ELSE {n} END" for n in names)
    return f"SELECT {raw}, {plain} FROM {table.name}"


_SELECT: Final = {table.name: _select(table) for table in TABLES}
_SELECT_RAW: Final = {table.name: _select_raw(table) for table in TABLES}
