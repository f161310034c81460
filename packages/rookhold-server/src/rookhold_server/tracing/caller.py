"""The trace that a caller is in, as its headers say it; it is linked to, and never continued.

Source: W3C Trace Context (Recommendation of 23 November 2021), sections 3.2 and 3.3.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

# A later version may be longer, and begins like this one.
_PARENT: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_VERSION: Final = b"ff"
_KEY: Final = rb"[a-z][_0-9a-z\-*/]{0,255}|[a-z0-9][_0-9a-z\-*/]{0,240}@[a-z][_0-9a-z\-*/]{0,13}"
_VALUE: Final = rb"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
_MEMBER: Final = re.compile(rb"(" + _KEY + rb")=(" + _VALUE + rb")")
_MEMBERS_MAX: Final = 32
_STATE_BYTES_MAX: Final = 512  # no more has to be handed on, and so no more is kept
_HEADER_BYTES_MAX: Final = 512


class Caller(NamedTuple):
    """Lower-case hexadecimal ids; the state is a list of vendors' members, as they came."""

    trace_id: str
    span_id: str
    sampled: bool
    state: tuple[tuple[str, str], ...] = ()


def caller_of(headers: Iterable[tuple[bytes, bytes]]) -> Caller | None:
    """Return the caller's place, or None where there is none that keeps the rules."""
    parents, states = [], []
    for name, value in headers:
        if name == b"traceparent":
            parents.append(value.strip(b" \t"))
        elif name == b"tracestate":
            states.append(value)
    if len(parents) != 1 or len(parents[0]) > _HEADER_BYTES_MAX:
        return None
    match = _PARENT.fullmatch(parents[0])
    if match is None or match[1] == _NO_VERSION or (match[1] == b"00" and match[5] is not None):
        return None
    if not match[2].strip(b"0") or not match[3].strip(b"0"):  # all zeros stand for nothing
        return None
    return Caller(
        trace_id=match[2].decode(),
        span_id=match[3].decode(),
        sampled=bool(int(match[4], 16) & 1),
        state=_state(b",".join(states)),
    )


def _state(text: bytes) -> tuple[tuple[str, str], ...]:
    """Return the members, or none at all where one breaks a rule."""
    if len(text) > _STATE_BYTES_MAX:
        return ()
    members: dict[str, str] = {}
    for item in text.split(b","):
        if not (member := item.strip(b" \t")):
            continue
        match = _MEMBER.fullmatch(member)
        if match is None or (key := match[1].decode()) in members:
            return ()
        members[key] = match[2].decode()
    return tuple(members.items()) if len(members) <= _MEMBERS_MAX else ()
