"""The limits of a connection, apart from those of a request's body."""

from __future__ import annotations

from msgspec import Struct


class TransportLimits(Struct, frozen=True, kw_only=True):
    """Seconds and counts. Tests shorten them; a server does not."""

    connections: int = 256  # accepted at once; further peers wait in the kernel's backlog
    backlog: int = 1024
    head_seconds: float = 30.0  # every head, the later ones of a connection too
    write_seconds: float = 30.0  # without one byte accepted by the peer
    lifetime_seconds: float = 600.0
    drain_seconds: float = 10.0  # what running exchanges get at shutdown
    linger_seconds: float = 0.25  # reading and dropping what a refused peer still sends
    linger_bytes: int = 1 << 20
    head_bytes: int = 1 << 16
    streams: int = 64  # requests at once on one connection of HTTP/2
    window_bytes: int = 1 << 18  # of one body that no handler has taken; a connection has two

    @property
    def tick_seconds(self) -> float:
        """How often the deadlines are looked at: a tenth of the shortest, at most a second."""
        shortest = min(self.head_seconds, self.write_seconds, self.lifetime_seconds)
        return min(1.0, shortest / 10)
