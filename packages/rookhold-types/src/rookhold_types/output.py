"""Folding an event history into what the job printed, broke and left behind."""

import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from rookhold_types.errors import EventDataError
from rookhold_types.events import LEGACY_VERSION, EventKind, WireEvent

# What an event of these kinds has, at the least.
_MEMBERS: Final[Mapping[str, Mapping[str, type]]] = {
    EventKind.STDOUT.value: {"line": str, "eol": bool},
    EventKind.STDERR.value: {"line": str, "eol": bool},
    EventKind.VIOLATION.value: {"rule": str, "detail": dict},
    EventKind.ARTIFACT.value: {
        "path": str,
        "content_base64": str,
        "size_bytes": int,
        "sha256": str,
    },
}


class Folded(Struct, frozen=True, kw_only=True):
    """The parts of a result that come from events.

    `stdout_base64` and `stderr_base64` are None where the text says exactly what was printed.
    """

    stdout: str
    stderr: str
    stdout_base64: str | None
    stderr_base64: str | None
    truncated: bool
    violations: tuple[dict[str, Any], ...]
    artifacts: tuple[dict[str, Any], ...]


def fold(events: Iterable[WireEvent]) -> Folded:
    """Fold events in their order; those of other kinds, also unknown ones, do not take part.

    An event of the time before the hashes may hold anything. One that cannot be read is left out,
    and what is left counts as truncated.
    """
    return fold_records(
        (EventKind.TRUNCATED.value, {}) if _unreadable(event) else (event.kind, event.data)
        for event in events
    )


def _unreadable(event: WireEvent) -> bool:
    members = _MEMBERS.get(event.kind)
    if event.hash_version != LEGACY_VERSION or members is None:
        return False
    data: object = event.data
    if not isinstance(data, dict):
        return True
    if any(type(data.get(name)) is not wanted for name, wanted in members.items()):
        return True
    if "line" in members:
        try:
            record_bytes(data)
        except EventDataError:
            return True
    return False


def fold_records(records: Iterable[tuple[str, dict[str, Any]]]) -> Folded:
    """Fold `(kind, data)` pairs, for callers that hold rows rather than events."""
    by_kind: dict[str, list[dict[str, Any]]] = {
        EventKind.STDOUT.value: [],
        EventKind.STDERR.value: [],
        EventKind.VIOLATION.value: [],
        EventKind.ARTIFACT.value: [],
        EventKind.TRUNCATED.value: [],
    }
    for kind, data in records:
        kept = by_kind.get(kind)
        if kept is not None:
            kept.append(data)
    stdout, stdout_base64 = _stream(by_kind[EventKind.STDOUT.value])
    stderr, stderr_base64 = _stream(by_kind[EventKind.STDERR.value])
    return Folded(
        stdout=stdout,
        stderr=stderr,
        stdout_base64=stdout_base64,
        stderr_base64=stderr_base64,
        truncated=bool(by_kind[EventKind.TRUNCATED.value]),
        violations=tuple(by_kind[EventKind.VIOLATION.value]),
        artifacts=tuple(by_kind[EventKind.ARTIFACT.value]),
    )


def record_bytes(data: Mapping[str, Any]) -> bytes:
    """Return exactly the bytes that one output event stands for, its line feed included."""
    try:
        raw = data.get("raw_base64")
        line = data["line"].encode() if raw is None else binascii.a2b_base64(raw)
        return line + b"\n" if data["eol"] else bytes(line)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise EventDataError("an output event is malformed") from None


def _stream(records: list[dict[str, Any]]) -> tuple[str, str | None]:
    try:
        text = "".join([f"{data['line']}\n" if data["eol"] else data["line"] for data in records])
    except (KeyError, TypeError):
        raise EventDataError("an output event is malformed") from None
    if not any("raw_base64" in data for data in records):
        return text, None
    raw = b"".join([record_bytes(data) for data in records])
    return text, binascii.b2a_base64(raw, newline=False).decode("ascii")
