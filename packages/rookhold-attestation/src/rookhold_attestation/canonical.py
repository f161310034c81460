"""Canonical JSON and the receipt digest; the reader's side knows the whole v1 number grammar.

Rookhold's own encoder of the same form lives in another wheel on purpose: a verifier must not
depend on the code of what it verifies. One vector file keeps the two together.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Final

from . import profile, quickjson
from .errors import JsonEncodingError, NumberOutOfRangeError

_QUOTE: Final = json.JSONEncoder(ensure_ascii=False)  # used on strings only
_PLAIN_POINT_MIN: Final = -4  # 1e-5 is 0.1e-4
_PLAIN_POINT_MAX: Final = 16  # the last below 1e16


class _Written(str):
    """Text that is already JSON, told apart from a string that still has to be quoted."""

    __slots__ = ()


def canonical(value: object, document: str = profile.RECEIPT_DOCUMENT) -> bytes:
    """Write a value in the one canonical form, spelling every v1 number as the profile says.

    Keys are sorted by code point, arrays keep their order, and nothing but quote, backslash and
    controls below 0x20 is escaped. Raises JsonEncodingError for anything that JSON lacks: lone
    surrogates, keys that are not strings, infinities, other types.
    """
    quick = quickjson.write(value)
    try:
        return (write_carefully(value, document) if quick is None else quick).encode()
    except UnicodeEncodeError:
        raise JsonEncodingError(document=document) from None


def write_carefully(value: object, document: str = profile.RECEIPT_DOCUMENT) -> str:
    """Do all of it here; whatever the quick writer takes, it writes in the same way."""
    return "".join(_write(value, document))


def quote(text: str) -> str:
    """Return one JSON string; encoding it may still fail if it holds a lone surrogate."""
    return _QUOTE.encode(text)


def _write(root: object, document: str) -> list[str]:
    out: list[str] = []
    waiting: list[object] = [root]
    while waiting:
        value = waiting.pop()
        match value:
            case _Written():
                out.append(value)
            case str():
                out.append(quote(value))
            case None:
                out.append("null")
            case bool():
                out.append("true" if value else "false")
            case int() | float():
                out.append(number_text(value, document))
            case list() | tuple():
                waiting.extend(reversed(_array_parts(value)))
            case Mapping():
                waiting.extend(reversed(_object_parts(value, document)))
            case _:
                raise JsonEncodingError(document=document)
    return out


def _array_parts(elements: list[object] | tuple[object, ...]) -> list[object]:
    parts: list[object] = [_Written("[")]
    for index, element in enumerate(elements):
        if index:
            parts.append(_Written(","))
        parts.append(element)
    parts.append(_Written("]"))
    return parts


def _object_parts(members: Mapping[object, object], document: str) -> list[object]:
    names = [name for name in members if isinstance(name, str)]
    if len(names) != len(members):
        raise JsonEncodingError(document=document)
    parts: list[object] = [_Written("{")]
    for index, name in enumerate(sorted(names)):
        parts.append(_Written(f"{',' if index else ''}{quote(name)}:"))
        parts.append(members[name])
    parts.append(_Written("}"))
    return parts


def number_text(number: int | float, document: str = profile.RECEIPT_DOCUMENT) -> str:
    """Spell one number; an integer outside 64 bits is spelt as the nearest float."""
    if isinstance(number, int):
        if profile.I64_MIN <= number <= profile.U64_MAX:
            return str(number)
        try:
            number = float(number)
        except OverflowError:
            raise JsonEncodingError(document=document) from None
    if not math.isfinite(number):
        raise JsonEncodingError(document=document)
    return _float_text(number)


def _float_text(number: float) -> str:
    """Lay out the shortest digits that read back the same.

    `repr` finds the digits, but switches to exponents below 1e-4 and pads them: 1e-5 up to 1e16 is
    plain here, and an exponent has a sign and no padding.
    """
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if number == 0:
        return f"{sign}0.0"
    mantissa, _, exponent = repr(abs(number)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    # The value is 0.DIGITS times ten to the power of `point`.
    point = len(digits) - len(fraction) + int(exponent or "0")
    digits = digits.rstrip("0")
    if not _PLAIN_POINT_MIN <= point <= _PLAIN_POINT_MAX:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{point - 1:+d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    return f"{sign}{digits[:point].ljust(point, '0')}.{digits[point:] or '0'}"


def receipt_digest(receipt: Mapping[str, object]) -> str:
    """Return the lowercase SHA-256 of a receipt without its top-level `receipt_sha256`."""
    rest = {name: value for name, value in receipt.items() if name != "receipt_sha256"}
    return hashlib.sha256(canonical(rest)).hexdigest()


def refuse_unsafe_numbers(value: object) -> None:
    """Raise NumberOutOfRangeError unless every number is an integer within plus or minus 2^53-1."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case bool() | str():
                pass
            case int() as number if abs(number) <= profile.SAFE_INTEGER_MAX:
                pass
            case int() | float():
                raise NumberOutOfRangeError
            case list() | tuple() as elements:
                waiting.extend(elements)
            case Mapping() as members:
                waiting.extend(members.values())
            case _:
                pass  # no number in it; whether it can be written at all, the writer decides
