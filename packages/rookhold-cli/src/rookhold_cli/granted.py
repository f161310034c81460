"""Which limits a job was asked to have and did not get: said, since its exit code cannot tell."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from .plain_words import MEASURED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAMES: Final = MappingProxyType(
    {
        "wall_seconds": ("time", " s"),
        "cpu_seconds": ("processor time", " s"),
        "mem_mb": ("memory", " MiB"),
        "max_pids": ("process", ""),
        "max_file_mb": ("file size", " MiB"),
    }
)


def differences(asked: Mapping[str, int], receipt: Mapping[str, Any]) -> Iterator[str]:
    """Say of each limit in `asked` that it was another one, or not enforced at all."""
    effective = receipt.get("effective_limits") or {}
    for member, wanted in asked.items():
        if member not in effective:  # the job never started, or the gateway does not tell
            continue
        name, unit = _NAMES[member]
        given = effective[member]
        if given is None and member == "cpu_seconds":
            yield f"the {name} limit is {MEASURED} there"
        elif given is None:
            yield f"the {name} limit does not hold for a whole job there; see `rookhold check`"
        elif given != wanted:
            yield f"the {name} limit was {given}{unit}, not the {wanted}{unit} asked for"
