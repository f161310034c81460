"""Keeps an eye on tasks that must not end before shutdown."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from rookhold_server.jobs.diagnosis import named

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


class Supervisor:
    """Remembers the first diagnosis, and begins shutdown because of it."""

    def __init__(self, begin_shutdown: Callable[[], None]) -> None:
        self._begin_shutdown = begin_shutdown
        self.shutdown = anyio.Event()
        self.fatal: str | None = None

    def diagnose(self, text: str) -> None:
        """Something is broken for good; the first such text is kept, also while shutting down."""
        log.critical("%s", text)
        if self.fatal is None:
            self.fatal = text
        self._begin_shutdown()

    async def watch(self, name: str, task: Callable[[], Awaitable[object]]) -> None:
        """Run a task that may return only after shutdown was published."""
        if await self.step(name, task) and not self.shutdown.is_set():
            self.diagnose(f"{name} returned unexpectedly")

    async def step(self, name: str, task: Callable[[], Awaitable[object]]) -> bool:
        """Run a task to its end; False if it failed, and that is fatal."""
        try:
            await task()
        except Exception as error:
            log.exception("%s failed", name)
            self.diagnose(f"{name} failed: {named(error)}")
            return False
        return True
