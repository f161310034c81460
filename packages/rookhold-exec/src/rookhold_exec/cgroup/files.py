"""Descriptors for the files of control groups that cgroupspy has no interface for.

They follow its `BaseFileInterface`: a class attribute of a controller, read and written as a value.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cgroupspy.interfaces import BaseFileInterface  # type: ignore[import-untyped]

__all__ = ["CountersFile", "LimitFile", "NestedKeysFile", "QuotaFile", "WordsFile"]


class _File(BaseFileInterface):  # type: ignore[misc]
    # cgroupspy has no types; a value is whatever the descriptor makes of the file.
    if TYPE_CHECKING:

        def __get__(self, instance: object, owner: type) -> Any: ...
        def __set__(self, instance: object, value: Any) -> None: ...


class LimitFile(_File):
    """A number, or None for the word `max`: no limit."""

    def sanitize_get(self, value: str) -> int | None:
        return None if value == "max" else int(value)

    def sanitize_set(self, value: int | None) -> str:
        return "max" if value is None else str(int(value))


class CountersFile(_File):
    """Lines of a name and a number, as a dict. Read-only; an empty file is an empty dict."""

    readonly = True

    def sanitize_get(self, value: str) -> dict[str, int]:
        return {name: int(number) for name, number in map(str.split, value.splitlines())}


class NestedKeysFile(_File):
    """Lines of a name and `key=value` pairs, as a dict of dicts; `max` is None."""

    def sanitize_get(self, value: str) -> dict[str, dict[str, int | None]]:
        rows = (line.split() for line in value.splitlines())
        return {name: dict(map(_pair, pairs)) for name, *pairs in rows}

    def sanitize_set(self, value: Mapping[str, Mapping[str, int | None]]) -> str:
        """One line for each name; the kernel takes one at a time."""
        return "\n".join(
            " ".join([name, *(f"{key}={_shown(number)}" for key, number in pairs.items())])
            for name, pairs in value.items()
        )


class QuotaFile(_File):
    """`cpu.max`: microseconds (None: no limit) in each period of so many microseconds."""

    def sanitize_get(self, value: str) -> tuple[int | None, int]:
        quota, period = value.split()
        return (None if quota == "max" else int(quota), int(period))

    def sanitize_set(self, value: tuple[int | None, int]) -> str:
        quota, period = value
        return f"{_shown(quota)} {int(period)}"


class WordsFile(_File):
    """Words, as a set. Writing takes `+word` and `-word`."""

    def sanitize_get(self, value: str) -> frozenset[str]:
        return frozenset(value.split())

    def sanitize_set(self, value: frozenset[str]) -> str:
        return " ".join(sorted(value))


def _pair(text: str) -> tuple[str, int | None]:
    key, _, number = text.partition("=")
    return key, None if number == "max" else int(number)


def _shown(number: int | None) -> str:
    return "max" if number is None else str(int(number))
