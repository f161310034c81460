"""The engine: what the HTTP side may ask of the job side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookhold_server.jobs.accept import Acceptor
from rookhold_server.jobs.admission import QueueAdmission
from rookhold_server.jobs.ages import WatchedClock
from rookhold_server.jobs.away import away, spec_is_large
from rookhold_server.jobs.cancel import Canceller
from rookhold_server.jobs.dispatcher import Dispatcher
from rookhold_server.jobs.fairqueue import FairQueue
from rookhold_server.jobs.finalise import Finaliser
from rookhold_server.jobs.lifecycle import Lifecycle
from rookhold_server.jobs.live import LiveHub
from rookhold_server.jobs.permits import MemoryPermits
from rookhold_server.jobs.ports import Companions, NoCompanions
from rookhold_server.jobs.posture import capabilities, offered_packs
from rookhold_server.jobs.queries import Queries
from rookhold_server.jobs.recovery import Recovery
from rookhold_server.jobs.supervision import Supervisor
from rookhold_server.jobs.sweeper import Sweeper
from rookhold_server.jobs.tokens import CancelTokens, StopReason
from rookhold_server.jobs.values import (
    EngineSettings,
    SignerConfig,
    StoredAttestation,
    Submitted,
    TenantStatus,
)
from rookhold_server.jobs.waits import Waits
from rookhold_server.jobs.worker import Shop, Worker
from rookhold_server.metrics.recorder import SILENT
from rookhold_server.refusal import Refusal
from rookhold_server.signing.signer import Signer
from rookhold_server.storage import Storage
from rookhold_server.tracing.spans import UNTRACED
from rookhold_types.checks import check_spec
from rookhold_types.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import anyio

    from rookhold_exec.executor import Executor, Posture
    from rookhold_server.metrics.recorder import Recorder
    from rookhold_server.storage import Room
    from rookhold_server.tracing.spans import Tracer
    from rookhold_store import Store
    from rookhold_store.operations import Participant
    from rookhold_store.rows import EventTexts
    from rookhold_types.clock import Clock
    from rookhold_types.jobs import JobSpec
    from rookhold_types.service import Capabilities
    from rookhold_types.views import (
        CancelResponse,
        JobDetail,
        JobPage,
        JobView,
        ReplayPage,
        ResultView,
    )

__all__ = [
    "Engine",
    "EngineSettings",
    "SignerConfig",
    "StoredAttestation",
    "Submitted",
    "TenantStatus",
]


class Engine:
    """Owns every job from its submission to its signed receipt.

    The executor is opened before an Engine is made of it and closed after `run` returned; the
    store stays open as long. Everything but `begin_shutdown` from a signal handler of the loop is
    called on the loop that runs `run`.
    """

    def __init__(
        self,
        *,
        store: Store,
        executor: Executor,
        settings: EngineSettings,
        signer: SignerConfig | None,
        clock: Clock,
        companions: Companions | None = None,
        recorder: Recorder = SILENT,
        tracer: Tracer = UNTRACED,
    ) -> None:
        posture = executor.posture
        key = None if signer is None else signer.key
        companions = companions or NoCompanions()
        clock = watched = WatchedClock(clock)
        permits = MemoryPermits.under(
            posture, job_ceiling_mb=settings.max_job_mem_mb, budget_mb=settings.memory_budget_mb
        )
        self._settings = settings
        self._executor = executor
        self._key = key
        self._recorder = recorder
        self._storage = storage = Storage(store, recorder)
        self._supervisor = Supervisor(self.begin_shutdown)
        self._live = live = LiveHub()
        self._signatures = LiveHub()
        self._tokens = CancelTokens()
        self._admission = QueueAdmission(
            capacity=settings.queue_capacity, tenant_capacity=settings.tenant_queue_capacity
        )
        self._dispatcher = dispatcher = Dispatcher(
            FairQueue(
                concurrency=settings.tenant_concurrency,
                budget_mb=settings.memory_budget_mb,
                weights=settings.tenant_weights,
            ),
            workers=settings.workers,
            concurrency=settings.tenant_concurrency,
        )
        self._signer = Signer(
            store=storage, key=key, clock=clock, settled=self._signatures.close, recorder=recorder
        )
        finaliser = Finaliser(store=storage, live=live, clock=clock, wake_signer=self._signer.wake)
        self._acceptor = Acceptor(
            store=storage,
            admission=self._admission,
            scheduling=dispatcher,
            live=live,
            permits=permits,
            clock=clock,
            recorder=recorder,
            stopped=lambda: self._stopped,
        )
        self._canceller = Canceller(
            store=storage,
            scheduling=dispatcher,
            tokens=self._tokens,
            finaliser=finaliser,
            companions=companions,
            clock=clock,
            recorder=recorder,
        )
        self._recovery = Recovery(
            store=storage,
            admission=self._admission,
            scheduling=dispatcher,
            live=live,
            permits=permits,
            companions=companions,
            clock=clock,
            recorder=recorder,
        )
        shop = Shop(
            store=storage,
            executor=executor,
            scheduling=dispatcher,
            live=live,
            tokens=self._tokens,
            finaliser=finaliser,
            companions=companions,
            permits=permits,
            clock=clock,
            recorder=recorder,
            tracer=tracer,
            shutting_down=lambda: self.shutting_down,
        )
        self._workers = [Worker(shop, slot) for slot in range(settings.workers)]
        self._queries = Queries(storage, signing=key is not None, place=dispatcher.place)
        self._waits = Waits(
            store=storage,
            live=live,
            signatures=self._signatures,
            signing=key is not None,
            stopping=lambda: self.shutting_down,
        )
        self._sweeper = self._make_sweeper(watched)
        self._lifecycle = Lifecycle(
            settings=settings,
            supervisor=self._supervisor,
            recovery=self._recovery,
            dispatcher=dispatcher,
            workers=self._workers,
            signer=self._signer,
            sweeper=self._sweeper,
        )
        self._stopped = False  # `run` has returned: nobody waits for the store any more

    def _make_sweeper(self, clock: WatchedClock) -> Sweeper | None:
        if not self._settings.retention_hours:
            return None
        return Sweeper(
            store=self._storage,
            clock=clock,
            age_ms=self._settings.retention_hours * 3_600_000,
            interval_seconds=self._settings.sweep_interval_seconds,
            removed=self._forget,
            recorder=self._recorder,
        )

    def _forget(self, job_id: str) -> None:
        """Retention has removed the job: whoever still follows it has nothing to wait for."""
        self._live.close(job_id)
        self._signatures.close(job_id)

    @property
    def posture(self) -> Posture:
        """The configured posture after preflight; not evidence about any run."""
        return self._executor.posture

    @property
    def shutting_down(self) -> bool:
        return self._supervisor.shutdown.is_set()

    @property
    def shutdown_event(self) -> anyio.Event:
        return self._supervisor.shutdown

    @property
    def fatal(self) -> str | None:
        """The first diagnosis of what ended the engine, or None."""
        return self._supervisor.fatal

    @property
    def live(self) -> LiveHub:
        """Channels of unfinished jobs, for readers of live events."""
        return self._live

    async def run(self, *, started: Callable[[], None]) -> None:
        """Recover, work and sign until shutdown; `started` is called once workers take jobs.

        Interrupted jobs are closed before `started`; queued ones come back after it. Returns
        after an orderly shutdown and after a fatal fault alike: read `fatal`.
        """
        try:
            await self._lifecycle.run(started)
        finally:
            self._stopped = True

    @property
    def recovered(self) -> bool:
        """Start-up recovery has finished: interrupted jobs are closed, queued ones are back."""
        return self._lifecycle.recovered

    def begin_shutdown(self) -> None:
        """Close admission and the launch gate, publish shutdown, stop what runs. Idempotent."""
        if self.shutting_down:
            return
        self._admission.close()
        self._dispatcher.close()
        self._supervisor.shutdown.set()
        self._tokens.set_all(StopReason.SHUTDOWN)
        self._live.disturb_all()
        self._signatures.disturb_all()
        self._signer.stop()
        if self._sweeper is not None:
            self._sweeper.stop()

    async def submit(
        self, *, tenant: str, spec: JobSpec, fingerprint: str, idempotency_key: str | None
    ) -> Submitted:
        """Checks 2 to 17 of a submission, then the durable accept.

        Raises Refusal. A caller that is cancelled neither loses nor doubles the job. A store
        fault raises the store's own error.
        """
        return await self.submit_with(
            tenant=tenant, spec=spec, fingerprint=fingerprint, idempotency_key=idempotency_key
        )

    async def submit_with(
        self,
        *,
        tenant: str,
        spec: JobSpec,
        fingerprint: str,
        idempotency_key: str | None,
        participants: Sequence[Participant] = (),
    ) -> Submitted:
        """The internal way in: rows of another layer are accepted with the job, or not at all."""
        if idempotency_key is not None:
            earlier = await self._acceptor.replay_of(tenant, idempotency_key, fingerprint)
            if earlier is not None:
                return earlier
        if self.shutting_down:
            raise Refusal("shutting_down")
        if not self.recovered:
            raise Refusal("startup_recovery")
        await away(lambda: self._check(spec), large=spec_is_large(spec))
        return await self._acceptor.accept(
            tenant=tenant,
            spec=spec,
            fingerprint=fingerprint,
            idempotency_key=idempotency_key,
            participants=participants,
        )

    def _check(self, spec: JobSpec) -> None:
        posture = self.posture
        try:
            check_spec(
                spec,
                available_languages=posture.languages,
                backend_class=posture.isolation_class,
                packs=offered_packs(posture),
            )
        except SpecError as error:
            raise Refusal(error.code, str(error), **error.detail) from error

    async def cancel(self, tenant: str, job_id: str) -> CancelResponse:
        """Cancel one of the tenant's jobs; Refusal `job_not_found`."""
        return await self._canceller.cancel(tenant, job_id)

    async def summary(self, tenant: str, job_id: str) -> JobView | None:
        """The cheap ownership check: None if foreign or missing."""
        return await self._queries.summary(tenant, job_id)

    async def detail(self, tenant: str, job_id: str) -> JobDetail:
        """Refusal `job_not_found`."""
        return await self._queries.detail(tenant, job_id)

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
        return await self._queries.list_jobs(
            tenant, limit=limit, cursor=cursor, status=status, language=language
        )

    async def replay(self, tenant: str, job_id: str, after: int, limit: int) -> ReplayPage:
        """Refusal `job_not_found`."""
        return await self._queries.replay(tenant, job_id, after, limit)

    async def event_texts(
        self, tenant: str, job_id: str, after: int, *, limit: int, max_bytes: int
    ) -> EventTexts:
        """Stored events, ready to be sent; Refusal `job_not_found`."""
        return await self._queries.event_texts(
            tenant, job_id, after, limit=limit, max_bytes=max_bytes
        )

    async def result(self, tenant: str, job_id: str) -> ResultView:
        """The events folded so far; Refusal `job_not_found`. Look at `status` for 200 or 202."""
        return await self._queries.result(tenant, job_id)

    async def wait_terminal(self, tenant: str, job_id: str, seconds: float) -> bool:
        """Wait until the job is terminal (True), the budget ends, or shutdown begins (False)."""
        return await self._waits.terminal(tenant, job_id, seconds)

    async def attestation(self, tenant: str, job_id: str) -> StoredAttestation:
        """Refusal `job_not_found`, `attestation_pending` or `attestation_unavailable`.

        The result-artifact route answers `result_artifact_unavailable` for the last.
        """
        return await self._waits.attestation(tenant, job_id)

    async def wait_attestation(self, tenant: str, job_id: str, seconds: float) -> None:
        """Wait until an envelope exists, certainly never will, or shutdown or budget ends it.

        Returns at once with signing off and for a foreign or missing job.
        """
        await self._waits.signed(tenant, job_id, seconds)

    def tenant_status(self, tenant: str) -> TenantStatus:
        return TenantStatus(
            queue_depth=self._admission.depth(tenant), running=self._dispatcher.running(tenant)
        )

    def owned(self, tenant: str) -> int:
        """How many of the tenant's jobs wait here or are in a worker's hands."""
        return self._dispatcher.owned(tenant)

    async def job_counts(self, tenant: str) -> Mapping[str, int]:
        """How many jobs the tenant has in each status that occurs; nothing is counted for it."""
        return await self._storage.job_counts(tenant)

    def capabilities(self) -> Capabilities:
        return capabilities(self._settings, self.posture, self._key)

    @property
    def queue_depth(self) -> int:
        """How many jobs wait, of all tenants."""
        return self._admission.total

    @property
    def queue_capacity(self) -> int:
        return self._settings.queue_capacity

    async def outbox_counts(self) -> tuple[int, int]:
        """How many jobs wait for their signature, and how many were given up."""
        return await self._storage.read(lambda reads: reads.outbox_counts())

    async def storage_room(self) -> Room:
        """How much is stored and may be, of all tenants, and what disk is left."""
        return await self._storage.room()

    async def storage_probe(self) -> bool:
        """Whether the store answers; never raises. The cadence is the caller's."""
        try:
            return await self._storage.probe()
        except Exception:  # noqa: BLE001 - an unusable store is the answer, not a fault of the question
            return False
