"""The metrics of this process, looked at when an operator asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from rookhold_server.metrics.exposition import render
from rookhold_server.metrics.prometheus import PrometheusRecorder, Reading, Stored
from rookhold_store import StorageUnavailableError, StoreClosedError

if TYPE_CHECKING:
    from rookhold_server.http.capacity import Pools
    from rookhold_server.http.readiness import Readiness
    from rookhold_server.jobs.engine import Engine

STORAGE_SECONDS: Final = 2.0


class Metrics:
    def __init__(
        self,
        token: bytes,
        recorder: PrometheusRecorder,
        *,
        engine: Engine,
        pools: Pools,
        readiness: Readiness,
    ) -> None:
        self.token = token
        self._recorder = recorder
        self._engine = engine
        self._pools = pools
        self._readiness = readiness

    async def tell(self, accept: str) -> tuple[bytes, bytes]:
        """Return content type and body."""
        self._recorder.look(await self._reading())
        return render(self._recorder.registry, accept)

    async def _reading(self) -> Reading:
        engine, pools = self._engine, self._pools
        bodies = (pools.small_bodies, pools.other_bodies)
        held = {
            "submit_bodies": bodies,
            "streams": (pools.streams,),
            "result_waits": (pools.result_waits,),
            "large_responses": (pools.large_responses,),
        }
        return Reading(
            ready=self._readiness.refusal() is None,
            parts={
                "startup": engine.recovered,
                "storage": self._readiness.storage_ready,
                "scheduler": engine.fatal is None,
                "accepting": not engine.shutting_down,
            },
            queue_depth=engine.queue_depth,
            queue_capacity=engine.queue_capacity,
            used={name: sum(pool.used for pool in some) for name, some in held.items()},
            limits={name: sum(pool.total for pool in some) for name, some in held.items()},
            stored=await self._stored(),
        )

    async def _stored(self) -> Stored | None:
        """A storage in trouble does not keep the rest from being told: that is when one looks."""
        with anyio.move_on_after(STORAGE_SECONDS):
            try:
                pending, failed = await self._engine.outbox_counts()
                room = await self._engine.storage_room()
            except (StorageUnavailableError, StoreClosedError):
                return None
            return Stored(
                outbox={"pending": pending, "failed": failed},
                charged=room.charged_bytes,
                quota=room.quota_bytes,
                free=room.free_bytes,
                reserve=room.reserve_bytes,
            )
        return None
