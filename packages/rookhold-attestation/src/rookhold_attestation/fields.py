"""Rules for single fields of the profile; every failure names the field, never its value."""

import re
from typing import Final

from . import profile
from .errors import InvalidProfileFieldError

_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")  # Unicode category Cc
_MEDIA_TYPE: Final = re.compile("[!-.0-~]+/[!-.0-~]+")  # visible ASCII around the one slash
_SHA256: Final = re.compile("[0-9a-f]{64}")


def has_control(text: str) -> bool:
    return _CONTROL.search(text) is not None


def is_sha256(value: object) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def check_text(text: str, most: int, field: str) -> None:
    """Demand 1 to `most` characters (Unicode scalars) without control characters."""
    if not 1 <= len(text) <= most or has_control(text):
        raise InvalidProfileFieldError(field=field)


def check_media_type(text: str) -> None:
    if len(text) > profile.MEDIA_TYPE_CHARS_MAX or _MEDIA_TYPE.fullmatch(text) is None:
        raise InvalidProfileFieldError(field="media_type")


def check_sha256(text: str, field: str) -> None:
    if not is_sha256(text):
        raise InvalidProfileFieldError(field=field)
