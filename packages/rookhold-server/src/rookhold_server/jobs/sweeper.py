"""The sweeper: removes what is older than its retention, a few short transactions at a time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from rookhold_server.jobs.diagnosis import named
from rookhold_server.metrics.recorder import SILENT, Recorder
from rookhold_store.operations import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from rookhold_server.jobs.ages import WatchedClock
    from rookhold_server.jobs.ports import JobStore

log = logging.getLogger(__name__)

BATCHES: Final = 16  # of one run
AGAIN_SECONDS: Final = 0.1
CLOCK_SET_MS: Final = 60_000  # a clock set by more than this is worth a line in the log


class Sweeper:
    """`removed` is told of each job that nobody sees any more. A failure costs a run, not more."""

    def __init__(
        self,
        *,
        store: JobStore,
        clock: WatchedClock,
        age_ms: int,
        interval_seconds: float,
        removed: Callable[[str], None],
        recorder: Recorder = SILENT,
    ) -> None:
        self._store = store
        self._clock = clock
        self._age_ms = age_ms
        self._interval_seconds = interval_seconds
        self._removed = removed
        self._recorder = recorder
        self._stop = anyio.Event()
        self._late_ms = 0

    def stop(self) -> None:
        """After the transaction at hand."""
        self._stop.set()

    async def run(self) -> None:
        while not self._stop.is_set():
            again = await self.sweep()
            with anyio.move_on_after(AGAIN_SECONDS if again else self._interval_seconds):
                await self._stop.wait()

    async def sweep(self) -> bool:
        """One run; True if it is worth another one soon."""
        jobs = events = 0
        more = failed = False
        try:
            for _ in range(BATCHES):
                if self._stop.is_set():
                    break
                swept = await self._store.run(
                    Sweep(now_ms=self._now_ms(), age_ms=self._age_ms), large=True
                )
                for job_id in swept.hidden:
                    self._removed(job_id)
                jobs, events = jobs + swept.jobs_deleted, events + swept.events_deleted
                more = swept.more_remaining and bool(swept.jobs_deleted or swept.events_deleted)
                if not more:
                    break
        except Exception as error:  # noqa: BLE001 - whatever it was, the next run tries again
            log.warning("a sweep failed and waits for the next run (%s)", named(error))
            more, failed = False, True
        self._recorder.swept(jobs, events, failed=failed)
        if jobs or events:
            log.info("retention removed jobs", extra={"jobs": jobs, "events": events})
        return more

    def _now_ms(self) -> int:
        now_ms = self._clock.cautious_ms(self._age_ms)
        late_ms = self._clock() - now_ms
        if abs(late_ms - self._late_ms) > CLOCK_SET_MS:
            self._late_ms = late_ms
            log.warning(
                "the clock was set; retention goes by the lowest time that jobs were stamped with",
                extra={"behind_seconds": late_ms // 1000},
            )
        return now_ms
