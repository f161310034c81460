"""Reads the members of a JSON object by name and type; what nobody asks for is ignored."""

from typing import TYPE_CHECKING, Any, TypeVar

from .errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

_T = TypeVar("_T")


class Members:
    """One JSON object of an answer. A newer gateway may have added members to it."""

    __slots__ = ("raw",)

    def __init__(self, value: object) -> None:
        if not isinstance(value, dict):
            raise ProtocolError("the answer is not a JSON object")
        self.raw: Mapping[str, Any] = value

    def text(self, name: str) -> str:
        return self._one(name, str)

    def maybe_text(self, name: str) -> str | None:
        return None if self.raw.get(name) is None else self._one(name, str)

    def integer(self, name: str) -> int:
        value = self._one(name, int)
        if isinstance(value, bool):  # JSON true is not a number, though Python's True is an int
            raise _wrong(name)
        return value

    def maybe_integer(self, name: str) -> int | None:
        return None if self.raw.get(name) is None else self.integer(name)

    def flag(self, name: str) -> bool:
        return self._one(name, bool)

    def mapping(self, name: str) -> dict[str, Any]:
        return self._one(name, dict)

    def maybe_mapping(self, name: str) -> dict[str, Any] | None:
        return None if self.raw.get(name) is None else self._one(name, dict)

    def within(self, name: str) -> "Members":
        return Members(self.mapping(name))

    def items(self, name: str) -> list[Any]:
        return self._one(name, list)

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings; absent or null reads as empty."""
        if self.raw.get(name) is None:
            return ()
        items = self._one(name, list)
        if not all(isinstance(item, str) for item in items):
            raise _wrong(name)
        return tuple(items)

    def _one(self, name: str, kind: type[_T]) -> _T:
        value = self.raw.get(name)
        if not isinstance(value, kind):
            raise _wrong(name)
        return value


def _wrong(name: str) -> ProtocolError:
    return ProtocolError(f"the answer's member {name!r} is missing or has the wrong type")
