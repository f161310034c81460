"""How many requests a tenant may make in one UTC minute, over all its credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rookhold_server.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

_MINUTE: Final = 60


class Budget(Struct, frozen=True):
    """What is left after the request that asked."""

    limit: int
    remaining: int


class RateLimiter:
    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        """`clock` is Unix time in seconds."""
        self._limit = per_minute
        self._clock = clock
        self._minute = -1
        self._used: dict[str, int] = {}  # this minute's; all windows turn together

    def take(self, tenant: str) -> Budget:
        """Count one request; Refusal `rate_limit_exceeded` once the budget is spent."""
        now = int(self._clock())
        minute, second = divmod(now, _MINUTE)
        if minute != self._minute:
            self._minute = minute
            self._used.clear()
        used = self._used.get(tenant, 0) + 1
        self._used[tenant] = used
        if used > self._limit:
            raise Refusal("rate_limit_exceeded", retry_after=_MINUTE - second)
        return Budget(self._limit, self._limit - used)
