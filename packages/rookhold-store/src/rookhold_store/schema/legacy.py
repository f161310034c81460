"""What step 0002 has to parse: texts that may not be UTF-8, and JSON that may not be JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from rookhold_store.errors import MigrationRefusedError
from rookhold_types.canonical import canonical

if TYPE_CHECKING:
    from collections.abc import Callable

    import apsw

_SPACE: Final = "\t\n\v\f\r "  # what the CHECKs of the schema trim


def legacy_id(value: bytes) -> str:
    """Return a job id; an id that is no text stops the step, for nothing could stand for it."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise MigrationRefusedError(
            "a job id is not UTF-8", table="jobs", column="job_id", version=2
        ) from None


def legacy_text(kind: str, value: bytes | None) -> str | None:
    """Return a text, or None for what is blank or no text."""
    if kind != "text" or value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.strip(_SPACE) else None


def legacy_reads(value: bytes) -> bool:
    """Whether the readers of this store take these bytes as JSON, as SQLite does already."""
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def legacy_wrapped(member: str, kind: str, value: bytes | None) -> str:
    """Return JSON that keeps what was no JSON: its text, or the bytes of what is no text."""
    kept: str | None = None
    if value is not None:
        try:
            kept = None if kind == "blob" else value.decode()
        except UnicodeDecodeError:
            kept = None
        if kept is None:
            kept = f"blob:hex:{value.hex()}"
    return canonical({member: kept}).decode()


_FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], int]]] = {
    "legacy_id": (legacy_id, 1),
    "legacy_text": (legacy_text, 2),
    "legacy_reads": (legacy_reads, 1),
    "legacy_wrapped": (legacy_wrapped, 3),
}


def register(db: apsw.Connection) -> None:
    """Let the steps' SQL call these functions."""
    for name, (function, arguments) in _FUNCTIONS.items():
        db.create_scalar_function(name, function, arguments, deterministic=True)


def unregister(db: apsw.Connection) -> None:
    """Take them away again."""
    for name, (_, arguments) in _FUNCTIONS.items():
        db.create_scalar_function(name, None, arguments)
