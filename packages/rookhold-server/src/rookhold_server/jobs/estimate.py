"""How long a queued job may still have to wait, guessed from what ran lately."""

from __future__ import annotations

from collections import deque
from math import ceil

REMEMBERED_RUNS = 64


class WaitEstimate:
    """The mean of the last runs, hand-over to finalisation; knows nothing before the first."""

    def __init__(self) -> None:
        self._runs_ms: deque[float] = deque(maxlen=REMEMBERED_RUNS)

    def observe(self, run_ms: float) -> None:
        self._runs_ms.append(run_ms)

    def wait_ms(self, position: int, *, slots: int) -> int | None:
        """The wait at `position` (from 1) while `slots` jobs of its tenant run at once."""
        if not self._runs_ms:
            return None
        mean = sum(self._runs_ms) / len(self._runs_ms)
        return round(mean * ceil(position / max(slots, 1)))
