"""The end of a job, tried until the store takes it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from rookhold_server.jobs.backoff import store_retry
from rookhold_server.jobs.diagnosis import named
from rookhold_server.jobs.outcome import Outcome
from rookhold_store.operations import Finalise
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rookhold_server.jobs.ports import JobStore, LiveBus
    from rookhold_store.operations import Finalised, Participant
    from rookhold_types.clock import Clock

log = logging.getLogger(__name__)


# What no retry changes: a provider's report, or a member from another layer, has no stored form.
_UNSTORABLE = frozenset({"invalid_operation", "not_canonical", "record_refused"})


def _unstorable(outcome: Outcome) -> Outcome:
    """The end of a job whose evidence cannot be stored: an error, and it says that it lacks it."""
    return Outcome(
        status=JobStatus.ERROR,
        duration_ms=max(outcome.duration_ms, 0),
        receipt={"killed_by": None, "evidence_complete": False},
    )


class Finaliser:
    """Commits outcomes, then tells the live channel and the signer."""

    def __init__(
        self, *, store: JobStore, live: LiveBus, clock: Clock, wake_signer: Callable[[], None]
    ) -> None:
        self._store = store
        self._live = live
        self._clock = clock
        self._wake_signer = wake_signer

    async def finish(
        self,
        tenant: str,
        job_id: str,
        outcome: Outcome,
        participants: Sequence[Participant] = (),
        *,
        large: bool = False,
    ) -> bool:
        """True once the job is terminal or gone; shutdown does not end the attempts."""
        for wait in store_retry():
            try:
                if await self._attempt(tenant, job_id, outcome, participants, large=large):
                    return True
            except Exception as error:  # noqa: BLE001 - there is no giving up on an end
                log.warning("job %s could not be finalised yet (%s)", job_id, named(error))
                if named(error) in _UNSTORABLE:
                    outcome = _unstorable(outcome)
            await anyio.sleep(wait)
        raise AssertionError("the waits never end")

    async def finish_at_once(
        self,
        tenant: str,
        job_id: str,
        outcome: Outcome,
        participants: Sequence[Participant] = (),
        *,
        large: bool = False,
    ) -> bool:
        """Try once, with the job's last events in the same transaction; False if that failed."""
        try:
            return await self._attempt(tenant, job_id, outcome, participants, large=large)
        except Exception as error:  # noqa: BLE001 - the caller takes the longer way
            log.warning("job %s could not be finalised at once (%s)", job_id, named(error))
            return False

    async def _attempt(
        self,
        tenant: str,
        job_id: str,
        outcome: Outcome,
        participants: Sequence[Participant],
        *,
        large: bool,
    ) -> bool:
        done = await self._store.run(
            Finalise(
                job_id=job_id,
                status=outcome.status,
                exit_code=outcome.exit_code,
                now_ms=self._clock(),
                duration_ms=outcome.duration_ms,
                receipt=outcome.receipt,
                events=outcome.events,
                effective_spec=outcome.effective_spec,
                participants=tuple(participants),
            ),
            large=large,
        )
        if done is None and not await self._is_over(tenant, job_id):
            return False
        self.announce(job_id, done)
        return True

    def announce(self, job_id: str, done: Finalised | None) -> None:
        """After the commit: broadcast `finished`, close the channel, wake the signer."""
        if done is not None:
            self._live.publish(job_id, (*done.events, done.event))
        self._live.close(job_id)
        self._wake_signer()

    async def _is_over(self, tenant: str, job_id: str) -> bool:
        row = await self._store.read(lambda reads: reads.summary(tenant, job_id))
        return row is None or row.terminal
