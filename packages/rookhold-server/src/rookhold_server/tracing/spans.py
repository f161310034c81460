"""Spans as calls. These ones only have an id, for the log; nobody asked for more."""

from __future__ import annotations

import secrets
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rookhold_server.tracing.caller import Caller

NO_FACTS: Final[Mapping[str, str | int]] = MappingProxyType({})


class Span:
    """One piece of work. Facts are ids, codes and counts: no tenant, no payload, no path."""

    __slots__ = ("trace_id",)

    def __init__(self, trace_id: str) -> None:
        self.trace_id = trace_id  # 32 lower-case hexadecimal digits

    def end(
        self, name: str, facts: Mapping[str, str | int] = NO_FACTS, *, failed: str | None = None
    ) -> None:
        """Say that it is over, what it turned out to be, and the code of our fault if it failed."""


class Tracer:
    """Every span that is begun is ended once, on the loop's thread."""

    def request(self, caller: Caller | None) -> Span:
        """Begin a trace, whatever trace the caller is in."""
        del caller
        return Span(secrets.token_hex(16))

    def job(self, origin: Span | None) -> Span:
        """Begin the trace of a job in a worker's hands; `origin` is how it was submitted."""
        del origin
        return Span(secrets.token_hex(16))

    def part(self, of: Span, name: str) -> Span:
        """Begin a part of a job."""
        del name
        return of

    def close(self) -> None:
        """Hand on what is finished, for as long as that may take."""


UNTRACED: Final = Tracer()
# The request that is being answered; jobs remember it until a worker has them.
current: ContextVar[Span | None] = ContextVar("rookhold_span", default=None)
