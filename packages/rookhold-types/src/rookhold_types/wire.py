"""How JSON enters and leaves: strict decoding into closed types, encoding of views."""

import json
import re
from collections.abc import Hashable
from functools import lru_cache
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct

from rookhold_types.errors import InvalidJsonError

_T = TypeVar("_T")

DEPTH_MAX: Final = 127  # arrays and objects inside each other; the attestation reader has the same


class Wire(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every request type: immutable, closed, snake_case on the wire.

    Bounds given with `Meta` hold on decoding only; outside data always enters by `decode_strict`.
    """


class View(Struct, frozen=True, kw_only=True):
    """Base of every response type: a reader keeps working when a newer server adds members."""


def decode_strict(data: bytes, type_: type[_T]) -> _T:
    """Decode one JSON document, refusing whatever two readers could understand differently.

    Unknown members (where the type is closed), repeated members at any depth, lone surrogate
    escapes, bytes that are not UTF-8, a byte-order mark, trailing data, the integer -0 and deep
    nesting are all `InvalidJsonError`. The typed pass comes first and stops at the first mismatch,
    so that a large body of another shape costs little; the size itself is the caller's to bound.
    """
    try:
        value = _decoder(cast("Hashable", type_)).decode(data)
    except msgspec.ValidationError as exc:
        raise _mismatch(exc) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise _malformed(exc) from None
    except RecursionError:
        raise _too_deep() from None
    _refuse_what_msgspec_lets_pass(data)
    return cast("_T", value)


def encode(view: Struct) -> bytes:
    """Return the compact JSON of a view, members in declared order."""
    return _ENCODER.encode(view)


def plain(view: Struct) -> dict[str, Any]:
    """Return a struct as plain JSON values: dicts, lists, texts, integers, booleans and None."""
    return cast("dict[str, Any]", msgspec.json.decode(_ENCODER.encode(view)))


_ENCODER: Final = msgspec.json.Encoder()


@lru_cache(maxsize=128)
def _decoder(type_: Hashable) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(cast("Any", type_))


class _DuplicateMemberError(Exception):
    pass


class _SignedZeroError(Exception):
    pass


def _check_members(pairs: list[tuple[str, Any]]) -> list[Any]:
    """Refuse an object with a repeated member; keep only what the depth check needs of it."""
    if len(pairs) > 1 and len(dict(pairs)) != len(pairs):
        raise _DuplicateMemberError
    nested = [value for _, value in pairs if type(value) is list]
    return nested or _FLAT


def _check_integer(text: str) -> int:
    """Refuse a zero with a sign: some readers lose the sign, some make it no integer at all."""
    if text == "-0":
        raise _SignedZeroError
    return int(text)


_FLAT: Final[list[Any]] = []  # shared by all objects with nothing inside: a large body stays small


# The standard library's scanner runs in C and calls back once per object: names are compared after
# unescaping, which no scan over the raw bytes would do.
_SECOND_READER: Final = json.JSONDecoder(object_pairs_hook=_check_members, parse_int=_check_integer)


def _refuse_what_msgspec_lets_pass(data: bytes) -> None:
    """Of two equal names msgspec keeps the last, and it skips unread members unchecked."""
    try:
        tree = _SECOND_READER.decode(data.decode("utf-8"))
    except _DuplicateMemberError:
        raise InvalidJsonError("a member is repeated", reason="duplicate_member") from None
    except _SignedZeroError:
        raise InvalidJsonError("an integer is written as -0", reason="mismatch") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as exc:
        raise _malformed(exc) from None
    if data.count(b"[") + data.count(b"{") > DEPTH_MAX:
        _refuse_depth(tree)


def _refuse_depth(tree: object) -> None:
    level, depth = [tree] if type(tree) is list else [], 0
    while level:
        depth += 1
        if depth > DEPTH_MAX:
            raise _too_deep()
        level = [inner for outer in level for inner in outer if type(inner) is list]


def _too_deep() -> InvalidJsonError:
    return InvalidJsonError("arrays and objects are nested too deeply", reason="too_deep")


def _malformed(exc: Exception) -> InvalidJsonError:
    found = re.search(r"\(byte (\d+)\)$", str(exc))
    where: dict[str, str | int] = {} if found is None else {"byte": int(found[1])}
    return InvalidJsonError("not a well-formed JSON document", reason="malformed", **where)


_UNKNOWN: Final = "Object contains unknown field"
_PATH: Final = re.compile(r" - at `(\$(?:\.[a-z_0-9]+|\[(?:\d+|\.\.\.)\])+)`$")


def _mismatch(exc: msgspec.ValidationError) -> InvalidJsonError:
    """Say where without saying what: only names that our own types declare are repeated."""
    text = str(exc)
    if text.startswith(_UNKNOWN):  # this text holds the caller's own name, and so may look like any
        return InvalidJsonError("an object has a member it must not have", reason="mismatch")
    found = _PATH.search(text)
    if found is None:
        return InvalidJsonError("a member is missing or has the wrong type", reason="mismatch")
    path = found[1]
    return InvalidJsonError(f"the value at {path} is not allowed", reason="mismatch", path=path)
