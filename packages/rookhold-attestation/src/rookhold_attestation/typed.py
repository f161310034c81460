"""Typed reading of a parsed document: required members, exact types, unknown members ignored.

The second of the two passes: structure comes first, so that a repeated member is reported before a
wrong type. A failure is an `invalid_json` that says where the offending value stands.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeGuard

from . import strictjson
from .errors import InvalidJsonError
from .locate import Path, locate
from .strictjson import Json


class Cursor(NamedTuple):
    """A value together with its place in its document."""

    text: str
    document: str
    path: Path
    value: Json

    def __repr__(self) -> str:
        return f"Cursor({self.document!r}, depth={len(self.path)})"

    def refused(self, reason: str) -> InvalidJsonError:
        offset = locate(self.text, self.path)
        return strictjson.refusal(self.document, self.text, offset, reason)

    def member(self, name: str) -> "Cursor":
        if not isinstance(self.value, dict):
            raise self.refused("an object is required")
        if name not in self.value:
            raise self.refused("a required member is missing")
        return self._at(name, self.value[name])

    def optional_text(self, name: str, absent: str) -> str:
        if isinstance(self.value, dict) and name not in self.value:
            return absent
        return self.member(name).string()

    def elements(self, most: int | None = None) -> Iterator["Cursor"]:
        if not isinstance(self.value, list):
            raise self.refused("an array is required")
        if most is not None and len(self.value) > most:
            raise self._at(most, self.value[most]).refused("an array has too many elements")
        for index, value in enumerate(self.value):
            yield self._at(index, value)

    def string_members(self) -> dict[str, str]:
        if not isinstance(self.value, dict):
            raise self.refused("an object is required")
        return {name: self._at(name, value).string() for name, value in self.value.items()}

    def string(self) -> str:
        if not isinstance(self.value, str):
            raise self.refused("a string is required")
        return self.value

    def unsigned(self, most: int) -> int:
        """Return an integer written as one: `1.0` and `-0` are not integers, nor is `true`."""
        if not is_unsigned(self.value, most):
            raise self.refused("an unsigned integer is required")
        return self.value

    def _at(self, place: str | int, value: Json) -> "Cursor":
        return Cursor(self.text, self.document, (*self.path, place), value)


def is_unsigned(value: Json, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def read(data: bytes, document: str) -> Cursor:
    """Parse a whole document strictly and stand at its root."""
    text = strictjson.decode_text(data, document)
    return Cursor(text, document, (), strictjson.parse_text(text, document))
