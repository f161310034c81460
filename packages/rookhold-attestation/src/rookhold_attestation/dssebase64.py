"""Base64 as DSSE envelopes carry it: padded, in one alphabet, with one spelling per value."""

import binascii
import re
from typing import Final

from .errors import InvalidBase64Error

_ALPHABET: Final = re.compile(r"[A-Za-z0-9+/_-]*=*")
_URL_TO_STANDARD: Final = str.maketrans("-_", "+/")


def encode(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def decode(text: str, field: str) -> bytes:
    """Decode padded standard or padded URL-safe text; the alphabet is decided per call.

    Refused, each with its own `reason`: any other character (whitespace included), both alphabets
    in one text, missing or wrong padding, and unused bits that are not zero.
    """
    if _ALPHABET.fullmatch(text) is None:
        raise InvalidBase64Error(field=field, reason="a character outside the alphabet")
    url_safe = "-" in text or "_" in text
    if url_safe and ("+" in text or "/" in text):
        raise InvalidBase64Error(field=field, reason="two alphabets in one text")
    if len(text) % 4 != 0:
        raise InvalidBase64Error(field=field, reason="padding is missing or wrong")
    standard = text.translate(_URL_TO_STANDARD) if url_safe else text
    try:
        data = binascii.a2b_base64(standard, strict_mode=True)
    except binascii.Error as exc:
        raise InvalidBase64Error(field=field, reason="padding is missing or wrong") from exc
    if encode(data) != standard:
        raise InvalidBase64Error(field=field, reason="unused bits are not zero")
    return data
