"""From start-up recovery to the last worker: in which order the engine's tasks begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from rookhold_server.jobs.dispatcher import Dispatcher
    from rookhold_server.jobs.recovery import Recovery
    from rookhold_server.jobs.supervision import Supervisor
    from rookhold_server.jobs.sweeper import Sweeper
    from rookhold_server.jobs.values import EngineSettings
    from rookhold_server.jobs.worker import Worker
    from rookhold_server.signing.signer import Signer


class Lifecycle:
    """Runs once. What it starts ends by itself after shutdown, or is cut when its grace is over."""

    def __init__(
        self,
        *,
        settings: EngineSettings,
        supervisor: Supervisor,
        recovery: Recovery,
        dispatcher: Dispatcher,
        workers: Sequence[Worker],
        signer: Signer,
        sweeper: Sweeper | None,
    ) -> None:
        self._settings = settings
        self._supervisor = supervisor
        self._recovery = recovery
        self._dispatcher = dispatcher
        self._workers = workers
        self._signer = signer
        self._sweeper = sweeper
        self.recovered = False

    async def run(self, started: Callable[[], None]) -> None:
        await self._within_grace(self._settings.recovery_grace_seconds, self._close_interrupted)
        if self._supervisor.fatal is not None:
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._signer.run)
            tasks.start_soon(self._supervisor.watch, "dispatcher", self._dispatcher.run)
            if self._sweeper is not None:
                tasks.start_soon(self._supervisor.watch, "sweeper", self._sweeper.run)
            await self._within_grace(
                self._settings.worker_grace_seconds, lambda: self._run_workers(started)
            )

    async def _close_interrupted(self) -> None:
        await self._supervisor.step("start-up recovery", self._recovery.close_interrupted)

    async def _run_workers(self, started: Callable[[], None]) -> None:
        supervisor = self._supervisor
        async with anyio.create_task_group() as working:
            for slot, worker in enumerate(self._workers):
                working.start_soon(supervisor.watch, f"worker {slot}", worker.run)
            started()
            await self._within_grace(self._settings.recovery_grace_seconds, self._readmit)

    async def _readmit(self) -> None:
        """Bring queued jobs back; what shutdown cuts off stays queued on disk."""
        done = await self._supervisor.step(
            "re-admission of queued jobs", self._recovery.readmit_queued
        )
        self.recovered = done and not self._supervisor.shutdown.is_set()

    async def _within_grace(self, seconds: float, body: Callable[[], Awaitable[None]]) -> None:
        """Run `body`, but not longer than `seconds` beyond the beginning of shutdown."""
        async with anyio.create_task_group() as guard:
            with anyio.CancelScope() as scope:
                guard.start_soon(self._cut, seconds, scope)
                await body()
            guard.cancel_scope.cancel()

    async def _cut(self, seconds: float, scope: anyio.CancelScope) -> None:
        await self._supervisor.shutdown.wait()
        await anyio.sleep(seconds)
        scope.cancel()
