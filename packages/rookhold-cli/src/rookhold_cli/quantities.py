"""Durations and sizes as people write them, as the whole seconds and MiB a job's limits take."""

from __future__ import annotations

import re
from typing import Final

from .errors import UsageError

_DURATION: Final = re.compile(
    r"(?:(\d{1,9})h)?(?:(\d{1,9})m(?:in)?)?(?:(\d{1,9})(?:s|sec)?)?", re.ASCII
)
_SIZE: Final = re.compile(r"(\d{1,9}) ?([KMG])i?B?", re.ASCII | re.IGNORECASE)
_KIB: Final = {"K": 1, "M": 1024, "G": 1024 * 1024}
_MAX: Final = 2**32 - 1


def seconds(text: str) -> int:
    """Read `90`, `90s`, `2m`, `1m30s` or `1h`."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or not any(found.groups()):
        raise UsageError(f"not a duration in whole seconds: {text} (write 90s, 2m or 1m30s)")
    hours, minutes, rest = (int(part or 0) for part in found.groups())
    return _bounded(hours * 3600 + minutes * 60 + rest, text)


def mebibytes(text: str) -> int:
    """Read `256M`, `256MB`, `256MiB` or `1G`; all of them count in powers of 1024."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"not a size: {text} (write 256M or 1G)")
    kib = int(found[1]) * _KIB[found[2].upper()]
    if kib % 1024:
        raise UsageError(f"not a whole number of MiB: {text}")
    return _bounded(kib // 1024, text)


def _bounded(value: int, text: str) -> int:
    if value > _MAX:
        raise UsageError(f"too large: {text}")
    return value
