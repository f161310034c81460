"""Canonical JSON: the one text of a value, for everything that is hashed or signed.

UTF-8, no insignificant whitespace, object keys sorted by code point, the fewest escapes JSON
allows, integers within plus or minus 2^53-1 and no other numbers. It is not RFC 8785.
"""

import hashlib
from typing import Any, Final

import msgspec

from rookhold_types.errors import CanonicalError

INTEGER_MAX: Final = 2**53 - 1

# msgspec escapes exactly the characters that our profile escapes, in the same short and long forms;
# sorting by UTF-8 bytes is sorting by code point. The shared vectors hold both to it.
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def canonical(value: object) -> bytes:
    """Return the canonical JSON of `value`, or raise CanonicalError if it has none."""
    try:
        text = _ENCODER.encode(value)
    except UnicodeEncodeError:
        raise CanonicalError("a text holds a lone surrogate", reason="surrogate") from None
    except RecursionError:
        raise CanonicalError("the value is nested too deeply", reason="too_deep") from None
    except (TypeError, ValueError, OverflowError):
        raise CanonicalError("the value is not JSON", reason="type") from None
    # After the encoder, which has shown that the value is finite; before anybody sees the text.
    _refuse_foreign_values(value)
    return text


def canonical_sha256(value: object) -> str:
    """Return the lowercase hex SHA-256 of the canonical JSON of `value`."""
    return hashlib.sha256(canonical(value)).hexdigest()


def _refuse_foreign_values(value: object) -> None:
    """Refuse what the encoder would write although this profile has no form for it."""
    pending: list[Any] = [(value,)]
    while pending:
        for item in pending.pop():
            kind = type(item)
            if kind is str or item is None or kind is bool:
                continue
            if kind is int:
                if not -INTEGER_MAX <= item <= INTEGER_MAX:
                    raise CanonicalError("an integer is outside 53 bits", reason="integer")
            elif kind is dict:
                for key in item:
                    if type(key) is not str:
                        raise CanonicalError("an object key is not a text", reason="key")
                pending.append(item.values())
            elif kind is list or kind is tuple:
                pending.append(item)
            elif kind is float:
                raise CanonicalError("a number is not an integer", reason="float")
            elif not isinstance(item, str):
                raise CanonicalError("the value is not JSON", reason="type")
