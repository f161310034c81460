"""The engine: what the HTTP side may ask of the job side."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rookhold_server.jobs.refusal import Refusal
from rookhold_server.jobs.values import (
    Clock,
    EngineSettings,
    SignerConfig,
    StoredAttestation,
    Submitted,
    TenantStatus,
)

if TYPE_CHECKING:
    import anyio
    from rookhold_exec.executor import Executor, Posture
    from rookhold_store import Store
    from rookhold_types.jobs import JobSpec
    from rookhold_types.views import (
        CancelResponse,
        Capabilities,
        JobDetail,
        JobPage,
        JobView,
        ReplayPage,
        ResultView,
    )

__all__ = [
    "Engine",
    "EngineSettings",
    "Refusal",
    "SignerConfig",
    "StoredAttestation",
    "Submitted",
    "TenantStatus",
]


class Engine:
    """Owns every job from its submission to its signed receipt.

    The executor is opened and closed by the caller; the store stays open until `run` returned.
    """

    shutting_down: bool
    recovered: bool  # start-up recovery has finished: interrupted jobs closed, queued ones back
    fatal: str | None  # first diagnosis of what ended the engine, or None
    shutdown_event: anyio.Event

    def __init__(
        self,
        *,
        store: Store,
        executor: Executor,
        settings: EngineSettings,
        signer: SignerConfig | None,
        clock: Clock,
    ) -> None:
        raise NotImplementedError

    @property
    def posture(self) -> Posture:
        """The configured posture after preflight; not evidence about any run."""
        raise NotImplementedError

    async def run(self, *, started: Callable[[], None]) -> None:
        """Recover, work and sign until shutdown; `started` is called once workers take jobs.

        Interrupted jobs are finalised before `started`; queued ones are re-admitted after it.
        Returns after an orderly shutdown and after a fatal fault alike: read `fatal`.
        """
        raise NotImplementedError

    def begin_shutdown(self) -> None:
        """Close admission, publish shutdown, cancel what runs. Idempotent; on the loop only."""
        raise NotImplementedError

    async def submit(
        self, *, tenant: str, spec: JobSpec, fingerprint: str, idempotency_key: str | None
    ) -> Submitted:
        """Checks 2 to 17 of a submission, then the durable accept.

        Raises Refusal. A caller that is cancelled neither loses nor doubles the job. A store
        fault raises the store's own error (500).
        """
        raise NotImplementedError

    async def cancel(self, tenant: str, job_id: str) -> CancelResponse:
        """Cancel one of the tenant's jobs; Refusal `job_not_found`."""
        raise NotImplementedError

    async def summary(self, tenant: str, job_id: str) -> JobView | None:
        """The cheap ownership check: None if foreign or missing."""
        raise NotImplementedError

    async def detail(self, tenant: str, job_id: str) -> JobDetail:
        """Refusal `job_not_found`."""
        raise NotImplementedError

    async def list_jobs(
        self,
        tenant: str,
        *,
        limit: int,
        cursor: tuple[int, str] | None,
        status: str | None,
        language: str | None,
    ) -> JobPage:
        """One page, newest first; `cursor` is (created_at_ms, job_id) of the row before it."""
        raise NotImplementedError

    async def replay(self, tenant: str, job_id: str, after: int, limit: int) -> ReplayPage:
        """Refusal `job_not_found`."""
        raise NotImplementedError

    async def result(self, tenant: str, job_id: str) -> ResultView:
        """The events folded so far; Refusal `job_not_found`. Look at `status` for 200 or 202."""
        raise NotImplementedError

    async def wait_terminal(self, tenant: str, job_id: str, seconds: float) -> bool:
        """Wait until the job is terminal (True), the budget ends, or shutdown begins (False)."""
        raise NotImplementedError

    async def attestation(self, tenant: str, job_id: str) -> StoredAttestation:
        """Refusal `job_not_found`, `attestation_pending` or `attestation_unavailable`.

        The result-artifact route answers `result_artifact_unavailable` for the last.
        """
        raise NotImplementedError

    async def wait_attestation(self, tenant: str, job_id: str, seconds: float) -> None:
        """Wait until an envelope exists, certainly never will, or shutdown or budget ends it.

        Returns at once with signing off and for a foreign or missing job.
        """
        raise NotImplementedError

    def tenant_status(self, tenant: str) -> TenantStatus:
        raise NotImplementedError

    def capabilities(self) -> Capabilities:
        raise NotImplementedError

    async def storage_probe(self) -> bool:
        """Whether the store answers; never raises. The two-second cadence is the caller's."""
        raise NotImplementedError
