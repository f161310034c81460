"""Cancel tokens: how DELETE and shutdown reach the worker that owns a job."""

from __future__ import annotations

from enum import StrEnum

import anyio


class StopReason(StrEnum):
    CANCELLED = "cancelled"
    SHUTDOWN = "shutdown"


class CancelToken:
    """Set once or twice, read by one worker; shutdown wins over a cancel that came with it."""

    __slots__ = ("_event", "_reason", "owned")

    def __init__(self) -> None:
        self._event = anyio.Event()
        self._reason: StopReason | None = None
        self.owned = False  # a worker has it

    @property
    def reason(self) -> StopReason | None:
        return self._reason

    def set(self, reason: StopReason) -> None:
        if self._reason is None or reason is StopReason.SHUTDOWN:
            self._reason = reason
        self._event.set()

    async def wait(self) -> StopReason:
        await self._event.wait()
        assert self._reason is not None  # noqa: S101 - set() stores it before the event
        return self._reason


class CancelTokens:
    """The tokens of jobs that a worker owns or a DELETE is reaching for."""

    def __init__(self) -> None:
        self._tokens: dict[str, CancelToken] = {}

    def own(self, job_id: str) -> CancelToken:
        """The worker's registration; finds a token that a DELETE installed first."""
        token = self.install(job_id)
        token.owned = True
        return token

    def owned(self, job_id: str) -> CancelToken | None:
        token = self._tokens.get(job_id)
        return token if token is not None and token.owned else None

    def install(self, job_id: str) -> CancelToken:
        return self._tokens.setdefault(job_id, CancelToken())

    def drop(self, job_id: str) -> None:
        self._tokens.pop(job_id, None)

    def drop_unowned(self, job_id: str) -> None:
        if (token := self._tokens.get(job_id)) is not None and not token.owned:
            del self._tokens[job_id]

    def set_all(self, reason: StopReason) -> None:
        for token in self._tokens.values():
            token.set(reason)
