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

from rookhold_types.canonical import INTEGER_MAX
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


class Undecodable(bytes):
    """A stored text that is not UTF-8."""


class Column(NamedTuple):
    name: str
    type: type
    rule: Rule | None = None
    null: bool = False


class Table:
    """One table: its columns in reading order, and what must hold between them."""

    def __init__(
        self,
        name: str,
        columns: tuple[Column, ...],
        across: Callable[[Any], Complaint | None] | None = None,
    ) -> None:
        self.name = name
        self.columns = columns
        self._across = across
        names = [column.name for column in columns]
        self._select = f"SELECT {', '.join(names)} FROM {name}"
        # The statement that no text can fail: each as bytes, then what is no text.
        raw = ", ".join(f"typeof({n}) = 'text', CAST({n} AS BLOB)" for n in names)
        plain = ", ".join(f"CASE typeof({n}) WHEN 'text' THEN NULL ELSE {n} END" for n in names)
        self._select_raw = f"SELECT {raw}, {plain} FROM {name}"

    def rows(
        self, db: apsw.Connection, where: str, bindings: Sequence[Any] = ()
    ) -> Generator[tuple[Any, ...], None, None]:
        """Yield the rows, a value of each column; what does not decode comes as `Undecodable`.

        The type that SQLite stored is the type that arrives, so that it can be judged here.
        """
        given = 0
        try:
            for row in db.execute(f"{self._select} {where}", bindings):
                given += 1
                yield row
        except UnicodeDecodeError:
            rows = db.execute(f"{self._select_raw} {where}", bindings)
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
        if not found and self._across is not None and (crossing := self._across(row)) is not None:
            found.append(crossing)
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


def json_text(text: str) -> str | None:
    return None if is_json(text) else "is not JSON"


def said(text: str) -> str | None:
    return None if text.strip(_BLANKS) else "is blank"


def hex64(text: str) -> str | None:
    return None if _HEX64.fullmatch(text) else "is not 64 lowercase hexadecimal digits"


def link(text: str) -> str | None:
    return None if not text or _HEX64.fullmatch(text) else "is neither empty nor a SHA-256"


def key(text: str) -> str | None:
    return None if _KEY.fullmatch(text) else "is no idempotency key"


def between(low: int, high: int) -> Rule:
    def rule(value: int) -> str | None:
        return None if low <= value <= high else f"is {value}, outside {low}..{high}"

    return rule


def long(low: int, high: int) -> Rule:
    def rule(value: str | bytes) -> str | None:
        size = len(value)
        return None if low <= size <= high else f"has a length of {size}, outside {low}..{high}"

    return rule


def not_negative(value: int) -> str | None:
    """No column of a number may go beyond what a receipt can say of it."""
    if value < 0:
        return f"is {value}, below 0"
    return None if value <= INTEGER_MAX else f"is {value}, beyond what a receipt can hold"


def status(value: str) -> str | None:
    return None if value in JobStatus.__members__.values() else "is no status"
