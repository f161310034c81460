"""The provider's keys as they are known now: kept for a while, and then asked for again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from rookhold_server.identity.oidc.jwks import JwksError, VerifyingKey, parse_jwks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 10.0  # between one refresh and the next, whoever asks
WAITING_MAX: Final = 64  # requests with an unknown key; strangers must not hold every connection


class ProviderKeys:
    """One set for everybody. A refresh replaces it as a whole, so that a withdrawn key is gone."""

    def __init__(
        self,
        read: Callable[[], Awaitable[bytes]],
        *,
        ttl_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        """`clock` only ever goes forward."""
        self._read = read
        self._ttl = ttl_seconds
        self._clock = clock
        self._keys: dict[str, VerifyingKey] = {}
        self._stale_at = self._quiet_until = float("-inf")
        self._running: anyio.Event | None = None
        self._waiting = 0

    async def open(self) -> None:
        """Have the first set, or raise JwksError; one that verifies nothing is none."""
        self._take(await self._read())
        if not self._keys:
            raise JwksError("no key of the document can verify a token here")

    async def find(self, kid: str) -> VerifyingKey | None:
        """Return the key; for an unknown one, and for a set that is too old, ask the provider."""
        fresh = self._clock() < self._stale_at
        if fresh and (key := self._keys.get(kid)) is not None:
            return key
        await self._refresh(patient=not fresh)
        return self._keys.get(kid) if self._clock() < self._stale_at else None

    async def _refresh(self, *, patient: bool) -> None:
        """Ask once for all who want it now, and not again before the pause is over."""
        if self._running is not None:
            if patient or self._waiting < WAITING_MAX:
                self._waiting += 1
                try:
                    await self._running.wait()
                finally:
                    self._waiting -= 1
            return
        if self._clock() < self._quiet_until:
            return
        self._running = anyio.Event()
        try:
            # For the others as well: it goes on when the request that began it is given up.
            with anyio.CancelScope(shield=True):
                self._take(await self._read())
        except JwksError as exc:
            _log.warning(
                "the keys of ROOKHOLD_OIDC_JWKS_URL could not be read again: %s",
                exc,
                extra={"code": "oidc_keys_unavailable"},
            )
        finally:
            self._quiet_until = self._clock() + PAUSE_SECONDS
            self._running.set()
            self._running = None

    def _take(self, document: bytes) -> None:
        self._keys = parse_jwks(document)
        self._stale_at = self._clock() + self._ttl
