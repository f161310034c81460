"""How long a queued job may still have to wait, guessed from what ran lately."""

from __future__ import annotations

from collections import deque

REMEMBERED_RUNS = 64


class WaitEstimate:
    """The mean of the last runs, hand-over to finalisation; knows nothing before the first."""

    def __init__(self) -> None:
        self._runs_ms: deque[float] = deque(maxlen=REMEMBERED_RUNS)

    def observe(self, run_ms: float) -> None:
        self._runs_ms.append(run_ms)

    def wait_ms(self, position: int, *, slots: float) -> int | None:
        """The wait at `position` (from 1) in a queue that `slots` jobs leave at once.

        Fewer than one slot is a turn that comes round only now and then.
        """
        if not self._runs_ms:
            return None
        mean = sum(self._runs_ms) / len(self._runs_ms)
        return round(mean * position / slots)
