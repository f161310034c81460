"""Credentials that were good when a stream was opened with them, and are so no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

    from rookhold_server.identity.principal import Principal
    from rookhold_server.identity.scopes import Scope


class Withdrawals:
    """Tells those who wait for it that a credential was revoked, removed or given less.

    Only to be used on the event loop.
    """

    def __init__(self, stands: Callable[[Principal, Scope], bool]) -> None:
        """`stands` is asked again only after `look_again`."""
        self.stands = stands
        self._changed = anyio.Event()

    @classmethod
    def never(cls) -> Withdrawals:
        """Of credentials that last as long as the process."""
        return cls(lambda _principal, _scope: True)

    def look_again(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def of(self, principal: Principal, scope: Scope) -> None:
        """Return once the principal has not got `scope` any more, which may be at once."""
        while self.stands(principal, scope):
            await self._changed.wait()
