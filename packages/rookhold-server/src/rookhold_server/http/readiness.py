"""Whether the server should get traffic; answering costs no I/O."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

    from rookhold_server.jobs.engine import Engine

PROBE_SECONDS: Final = 2.0
STALE_SECONDS: Final = 10.0


class Readiness:
    def __init__(self, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._clock = clock
        self._stored_at: float | None = None  # when the store last answered

    @property
    def storage_ready(self) -> bool:
        return self._stored_at is not None and self._clock() - self._stored_at <= STALE_SECONDS

    def refusal(self) -> str | None:
        """The code of the first thing that is in the way."""
        if not self._engine.recovered:
            return "startup_recovery"
        if self._engine.shutting_down:
            return "shutting_down"
        return None if self.storage_ready else "storage_unavailable"

    async def probe(self) -> None:
        """Ask the store once. A no counts at once; no answer at all leaves the last to go stale."""
        self._stored_at = self._clock() if await self._engine.storage_probe() else None

    async def watch(self) -> None:
        """Probe until shutdown begins; a probe that gets no answer does not hold that up."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._probe_on)
            await self._engine.shutdown_event.wait()
            tasks.cancel_scope.cancel()

    async def _probe_on(self) -> None:
        while True:
            await self.probe()
            await anyio.sleep(PROBE_SECONDS)
