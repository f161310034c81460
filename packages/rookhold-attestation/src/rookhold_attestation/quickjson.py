"""The standard library's JSON code, for the documents on which it cannot differ from ours.

It is many times as quick. Whatever it stumbles over, or might take otherwise than the careful
reader and writer do, is left to those: they alone refuse, and say where.
"""

import json
import math
import re
from typing import Final

from . import profile

_HALF_PAIR: Final = re.compile("\\\\u[dD]|[\ud800-\udfff]")
_DIGITS_MAX: Final = len(str(profile.U64_MAX)) + 1
_DEPTH_MAX: Final = profile.JSON_NESTING_MAX
_PLAIN: Final = frozenset({str, bool, type(None)})


class _LeftError(ValueError):
    """Not for this reader; never seen outside this module."""


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _LeftError
    return members


def _integer(digits: str) -> int:
    if digits == "-0" or len(digits) > _DIGITS_MAX:
        raise _LeftError
    number = int(digits)
    if not profile.I64_MIN <= number <= profile.U64_MAX:
        raise _LeftError
    return number


def _number(token: str) -> float:
    number = float(token)
    if math.isinf(number):
        raise _LeftError
    return number


def _constant(token: str) -> object:
    raise _LeftError


_READER: Final = json.JSONDecoder(
    object_pairs_hook=_members, parse_int=_integer, parse_float=_number, parse_constant=_constant
)
_WRITER: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, sort_keys=True, separators=(",", ":")
)


def read(text: str) -> tuple[object] | None:
    """Return what the careful reader would return, in a tuple, or None to have it read that."""
    opened = text.count("[") + text.count("{")  # also those in strings: an upper bound of the depth
    if opened > _DEPTH_MAX:
        return None
    if ("\\u" in text or not text.isascii()) and _HALF_PAIR.search(text) is not None:
        return None
    try:
        return (_READER.decode(text),)
    except ValueError:
        return None


def write(value: object) -> str | None:
    """Return the canonical text of a value without floats and foreign types, or None."""
    return _WRITER.encode(value) if _is_plain(value) else None


def _is_plain(value: object) -> bool:
    """Judge without recursion; the writer recurses no deeper than what was seen here."""
    level: list[object] = [value]
    for _ in range(_DEPTH_MAX):
        inner: list[object] = []
        for item in level:
            kind = type(item)
            if kind in _PLAIN:
                continue
            if kind is int:
                if not profile.I64_MIN <= item <= profile.U64_MAX:  # type: ignore[operator]
                    return False
            elif kind is dict:
                for name, member in item.items():  # type: ignore[attr-defined]
                    if type(name) is not str:
                        return False
                    inner.append(member)
            elif kind is list or kind is tuple:
                inner.extend(item)  # type: ignore[arg-type]
            else:
                return False
        if not inner:
            return True
        level = inner
    return False
