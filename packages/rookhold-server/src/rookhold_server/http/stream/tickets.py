"""Stream tickets: a credential's authority for one stream of one job, for half a minute."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rookhold_server.identity.principal import Principal

if TYPE_CHECKING:
    from collections.abc import Callable

LIFETIME_MS: Final = 30_000
_RANDOM_BYTES: Final = 32


class Ticket(Struct, frozen=True, kw_only=True):
    text: str
    expires_at_ms: int


class _Entry(Struct, frozen=True, kw_only=True):
    principal: Principal
    job_id: str
    expires_at_ms: int  # by the wall clock, as credentials are
    ends: float  # by the monotonic one, which nobody sets


class TicketBook:
    """In memory alone: a restart voids all of them.

    Keyed by digest, so that how long a look-up takes tells nothing about a ticket's text.
    """

    def __init__(self, wall_ms: Callable[[], int], monotonic: Callable[[], float]) -> None:
        self._wall_ms = wall_ms
        self._monotonic = monotonic
        self._entries: dict[bytes, _Entry] = {}  # in the order of their `ends`

    def mint(self, principal: Principal, job_id: str) -> Ticket:
        """Give out a new ticket, which never outlives the credential that asks for it."""
        now = self._monotonic()
        self._forget(now)
        text = secrets.token_bytes(_RANDOM_BYTES).hex()
        expires_at_ms = self._wall_ms() + LIFETIME_MS
        if principal.expires_at_ms is not None:
            expires_at_ms = min(expires_at_ms, principal.expires_at_ms)
        self._entries[_digest(text)] = _Entry(
            principal=principal,
            job_id=job_id,
            expires_at_ms=expires_at_ms,
            ends=now + LIFETIME_MS / 1000,
        )
        return Ticket(text=text, expires_at_ms=expires_at_ms)

    def spend(self, text: str, job_id: str) -> Principal | None:
        """Return whose authority it carries, once; None leaves another job's ticket unspent."""
        key = _digest(text)
        entry = self._entries.get(key)
        if entry is None or entry.job_id != job_id:
            return None
        del self._entries[key]
        if self._monotonic() >= entry.ends or self._wall_ms() >= entry.expires_at_ms:
            return None
        return entry.principal

    def _forget(self, now: float) -> None:
        expired = []
        for key, entry in self._entries.items():
            if entry.ends > now:
                break
            expired.append(key)
        for key in expired:
            del self._entries[key]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
