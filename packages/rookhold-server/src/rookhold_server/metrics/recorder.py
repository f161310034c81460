"""What is worth counting, as calls. This one forgets them: nobody asked for metrics."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class StorageWork(StrEnum):
    """What the storage is asked to do, as the metrics name it."""

    READ = "read"
    ACCEPT = "accept"
    START = "start"
    EVENTS = "events"
    FINALIZE = "finalize"
    RECOVERY = "recovery"
    RETENTION = "retention"
    READINESS = "readiness"


class Rejection(NamedTuple):
    """Which admission refused, and why."""

    scope: str
    reason: str


_POOLS: Final = {
    "submit_body": ("submit_body_capacity", "tenant_submit_body_capacity"),
    "stream": ("stream_capacity", "tenant_stream_capacity"),
    "result_wait": ("result_wait_capacity", "tenant_result_wait_capacity"),
    "large_response": ("response_capacity", "tenant_response_capacity"),
    "queue": ("queue_saturated", "tenant_queue_saturated"),
}
# Which refusal counts where. The last two only count on the route that takes submissions.
REJECTIONS: Final = MappingProxyType(
    {
        **{full: Rejection(scope, "global_full") for scope, (full, _) in _POOLS.items()},
        **{tenant: Rejection(scope, "tenant_full") for scope, (_, tenant) in _POOLS.items()},
        "rate_limit_exceeded": Rejection("rate", "rate_limited"),
        "scheduler_unavailable": Rejection("scheduler", "closed"),
        "startup_recovery": Rejection("scheduler", "startup"),
        "shutting_down": Rejection("scheduler", "shutdown"),
    }
)


class Recorder:
    """Every call is brief, keeps nothing of a tenant or job, and is made on the loop's thread."""

    def request_began(self) -> None: ...

    def request_ended(self, method: str, route: str, status: int, seconds: float) -> None: ...

    def rejected(self, rejection: Rejection) -> None: ...

    def submitted(self, language: str) -> None: ...

    def completed(self, language: str, status: str) -> None:
        """`status` is a terminal one, or `aborted` for a job that a shutdown left behind."""

    def execution_began(self) -> None: ...

    def execution_ended(self, language: str, status: str, seconds: float) -> None: ...

    def stored(self, work: StorageWork, seconds: float, *, failed: bool) -> None: ...

    def disk_refused(self, reason: str) -> None:
        """A job, for want of disk: `reserve` where what is left is to stay free, else `full`."""

    def truncated(self, kind: str) -> None:
        """`stdout`, `stderr`, or `evidence` where something is missing that was seen."""

    def recovered(self, *, interrupted: int = 0, restored: int = 0) -> None: ...

    def swept(self, jobs: int, events: int, *, failed: bool) -> None: ...

    def attested(self, outcome: str) -> None:
        """`signed`, `waived` or `failed`."""

    def attestation_retried(self) -> None: ...


SILENT: Final = Recorder()
