"""The steps of a worker between the hand-over of a job and its finalisation."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import Struct

from rookhold_exec.executor import AheadExecutor, Executor, Provenance, SandboxPlan
from rookhold_server.evidence.receipt import observed
from rookhold_server.jobs.away import LARGE_CHARS, away
from rookhold_server.jobs.backoff import store_retry
from rookhold_server.jobs.conclusion import conclude
from rookhold_server.jobs.diagnosis import named
from rookhold_server.jobs.execution import Execution, execute
from rookhold_server.jobs.finalise import Finaliser
from rookhold_server.jobs.guards import judge
from rookhold_server.jobs.history import history
from rookhold_server.jobs.outcome import Outcome
from rookhold_server.jobs.permits import MemoryPermits
from rookhold_server.jobs.ports import Companion, Companions, JobStore, LiveBus, Scheduling
from rookhold_server.jobs.pump import Draft, EventPump
from rookhold_server.jobs.tokens import CancelToken, CancelTokens, StopReason
from rookhold_server.logs import about
from rookhold_server.metrics.recorder import Recorder
from rookhold_server.tracing.spans import Span, Tracer
from rookhold_store.operations import Append, Start
from rookhold_types.checks import decode_files
from rookhold_types.clock import Clock
from rookhold_types.errors import SpecError
from rookhold_types.events import EventKind
from rookhold_types.limits import clamp
from rookhold_types.paths import check_output_path
from rookhold_types.requested import unrun_members
from rookhold_types.states import JobStatus, KilledBy
from rookhold_types.violations import ExecutorFault, Rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rookhold_server.jobs.fairqueue import Grant, Pending
    from rookhold_store.rows import JobRow
    from rookhold_types.events import WireEvent
    from rookhold_types.jobs import JobSpec

log = logging.getLogger(__name__)

_BEFORE_EXECUTION = {
    StopReason.SHUTDOWN: KilledBy.SERVER_SHUTDOWN_BEFORE_EXECUTION,
    StopReason.CANCELLED: KilledBy.CANCELLED_BEFORE_EXECUTION,
}
_BEFORE_LAUNCH = {
    StopReason.SHUTDOWN: KilledBy.SERVER_SHUTDOWN_BEFORE_LAUNCH,
    StopReason.CANCELLED: KilledBy.CANCELLED_BEFORE_LAUNCH,
}


class Shop(Struct, frozen=True, kw_only=True):
    """What all workers share."""

    store: JobStore
    executor: Executor
    scheduling: Scheduling
    live: LiveBus
    tokens: CancelTokens
    finaliser: Finaliser
    companions: Companions
    permits: MemoryPermits
    clock: Clock
    recorder: Recorder
    tracer: Tracer
    shutting_down: Callable[[], bool]


class Worker:
    """One slot. No two jobs are in a slot at once, so the slot may choose the sandbox's uid."""

    def __init__(self, shop: Shop, slot: int) -> None:
        self._shop = shop
        self._slot = slot

    async def run(self) -> None:
        """Work until the launch gate closes."""
        scheduling = self._shop.scheduling
        while (grant := await scheduling.next()) is not None:
            try:
                await self.take(grant)
            finally:
                scheduling.finished(grant)

    async def take(self, grant: Grant) -> None:
        """Bring one job to its end, or leave its row as it is for another process."""
        pending = grant.pending
        span = self._shop.tracer.job(pending.origin)
        facts: dict[str, str | int] = {"rookhold.job_id": pending.job_id}
        try:
            with pending.lease, about(job_id=pending.job_id, trace_id=span.trace_id):
                await self._take(pending, span, facts)
        finally:
            span.end("job", facts)

    async def _take(self, pending: Pending, span: Span, facts: dict[str, str | int]) -> None:
        if self._shop.shutting_down() or (row := await self._load(pending)) is None:
            return
        road = _Road(self._shop, self._slot, pending, row, span)
        try:
            await road.travel()
        except anyio.get_cancelled_exc_class():
            self._shop.recorder.completed(row.language, "aborted")
            raise
        finally:
            self._shop.tokens.drop(pending.job_id)
            facts |= {"rookhold.language": row.language, "rookhold.status": road.ended}
            log.debug("job ended", extra={"language": row.language, "status": road.ended})

    async def _load(self, pending: Pending) -> JobRow | None:
        """The row, if it is still there and not over; tried until it can be read or shutdown."""
        for wait in store_retry():
            try:
                row = await self._shop.store.read(
                    lambda reads: reads.get(None, pending.job_id), brief=not pending.large
                )
            except Exception as error:  # noqa: BLE001 - tried until the store answers
                log.warning("job %s could not be loaded yet (%s)", pending.job_id, named(error))
            else:
                if row is None or row.terminal:
                    self._shop.live.close(pending.job_id)
                    return None
                return row
            if self._shop.shutting_down():
                return None
            await anyio.sleep(wait)
        raise AssertionError("the waits never end")


class _Road:
    """One job in one worker's hands."""

    def __init__(self, shop: Shop, slot: int, pending: Pending, row: JobRow, span: Span) -> None:
        self._shop = shop
        self._slot = slot
        self._pending = pending
        self._row = row
        self._span = span
        self.ended = ""  # the status that was stored, once there is one
        self._large = len(row.spec_json) > LARGE_CHARS
        self._companion: Companion | None = None

    async def travel(self) -> None:
        shop = self._shop
        verdict = await away(
            lambda: judge(self._row, self._pending, shop.executor.posture), large=self._large
        )
        if verdict.refused is not None or verdict.spec is None:
            await self._finish(_refused(verdict.spec, verdict.refused))
            return
        spec = verdict.spec
        self._companion = await shop.companions.of(self._row)
        token = shop.tokens.own(self._row.job_id)
        if token.reason is StopReason.CANCELLED:
            await self._finish(self._stopped(spec, KilledBy.CANCELLED_BEFORE_START))
            return
        await self._execute(spec, token)

    async def _permitted(self, spec: JobSpec, token: CancelToken) -> bool:
        """Start the job durably; False where nothing of it shall run, and that is settled."""
        if not await self._start(spec, token):
            return False
        if (reason := self._stop_reason(token)) is not None:
            await self._finish(self._stopped(spec, _BEFORE_EXECUTION[reason]))
            return False
        self._pending.lease.release()
        return True

    async def _start(self, spec: JobSpec, token: CancelToken) -> bool:
        """The durable start; False where the job is over or stays queued."""
        shop, job_id = self._shop, self._row.job_id
        for wait in store_retry():
            if shop.shutting_down():
                return False
            if token.reason is StopReason.CANCELLED:
                await self._finish(self._stopped(spec, KilledBy.CANCELLED_BEFORE_START))
                return False
            try:
                started = await shop.store.run(Start(job_id=job_id, now_ms=shop.clock()))
                if started is not None:
                    shop.live.publish(job_id, (started.event,))
                    return True
                if (settled := await self._settled()) is not None:
                    return settled
            except Exception as error:  # noqa: BLE001 - tried until the store answers
                log.warning("job %s could not be started yet (%s)", job_id, named(error))
                try:
                    if (settled := await self._settled()) is not None:
                        return settled
                except Exception as error:  # noqa: BLE001 - tried until the store answers
                    log.warning("job %s could not be read back (%s)", job_id, named(error))
            await anyio.sleep(wait)
        raise AssertionError("the waits never end")

    async def _settled(self) -> bool | None:
        """After a start that told nothing: running counts, over or gone does not, else unknown."""
        row = await self._shop.store.read(
            lambda reads: reads.summary(self._row.tenant, self._row.job_id)
        )
        if row is None or row.terminal:
            self._shop.live.close(self._row.job_id)
            return False
        return True if row.status == JobStatus.RUNNING else None

    async def _execute(self, spec: JobSpec, token: CancelToken) -> None:
        """Have the job run, and end it; where the executor can, its sandbox is built meanwhile.

        A companion is told of the start before it is asked for its part of the plan.
        """
        shop, permit = self._shop, _Permit(lambda: self._permitted(spec, token))
        ahead = self._companion is None and isinstance(shop.executor, AheadExecutor)
        if not ahead and not await permit.ask():
            return
        pump = EventPump(append=self._append, publish=self._publish)
        try:
            plan = await away(lambda: self._plan(spec), large=self._large)
        except Exception as error:  # noqa: BLE001 - whatever it is, the job ends
            log.warning("job %s: no plan (%s)", self._row.job_id, named(error))
            if permit.asked or await permit.ask():
                await pump.add([(EventKind.VIOLATION, _setup_failed())])
                await self._finish(
                    self._stopped(spec, KilledBy.ARTIFACT_SETUP_FAILED, status=JobStatus.ERROR)
                )
            return
        if permit.asked and (reason := self._stop_reason(token)) is not None:
            await self._finish(self._stopped(spec, _BEFORE_EXECUTION[reason]))
            return
        execution = await self._run(plan, token, pump, None if permit.asked else permit)
        if permit.fault is not None:
            raise permit.fault
        if execution is None or not (permit.asked or await permit.ask()):
            return
        if execution.stopped_before_launch is not None:
            await self._finish(self._stopped(spec, _BEFORE_LAUNCH[execution.stopped_before_launch]))
            return
        await self._conclude(spec, execution, pump)

    async def _run(
        self, plan: SandboxPlan, token: CancelToken, pump: EventPump, permit: _Permit | None
    ) -> Execution | None:
        shop = self._shop
        shop.recorder.execution_began()
        part = shop.tracer.part(self._span, "execute")
        began, ended = perf_counter(), "aborted"
        try:
            execution = await execute(
                shop.executor,
                plan,
                token=token,
                pump=pump,
                permit=None if permit is None else permit.ask,
            )
            if execution is not None:
                ended = _status_of(execution).value
        finally:
            shop.recorder.execution_ended(self._row.language, ended, perf_counter() - began)
            part.end("execute", {"rookhold.status": ended})
        return execution

    async def _conclude(self, spec: JobSpec, execution: Execution, pump: EventPump) -> None:
        """End the job together with its last events; if that fails, one after the other."""
        while True:
            outcome = await conclude(
                spec,
                execution,
                pump,
                backend=self._shop.executor.posture.backend,
                history=self._history,
                large=self._large,
            )
            if not pump.holds_back:
                await self._finish(outcome)
                return
            if await self._finish(outcome, at_once=True):
                return
            await pump.flush()

    def _plan(self, spec: JobSpec) -> SandboxPlan:
        if not all(check_output_path(path) for path in spec.outputs):
            raise SpecError(code="invalid_output_path")
        plan = SandboxPlan(
            job_id=self._row.job_id,
            language=spec.language,
            code=spec.code.encode(),
            stdin=None if spec.stdin is None else spec.stdin.encode(),
            limits=clamp(
                spec.limits, min(self._row.admitted_mem_mb, self._shop.permits.job_ceiling_mb)
            ),
            files=decode_files(spec),
            outputs=spec.outputs,
            runtime=spec.runtime,
            slot=self._slot,
        )
        return plan if self._companion is None else self._companion.extend(plan)

    def _stopped(
        self, spec: JobSpec, killed_by: KilledBy, *, status: JobStatus = JobStatus.CANCELLED
    ) -> Outcome:
        """A job that nothing of ran: no evidence, and it says so."""
        nothing = Provenance.never_ready(self._shop.executor.posture.backend)
        return Outcome(
            status=status,
            receipt={
                **unrun_members(spec, killed_by),
                **observed(nothing, spec.requirements.minimum_isolation),
            },
        )

    def _stop_reason(self, token: CancelToken) -> StopReason | None:
        return StopReason.SHUTDOWN if self._shop.shutting_down() else token.reason

    async def _finish(self, outcome: Outcome, *, at_once: bool = False) -> bool:
        shop, row = self._shop, self._row
        companion = self._companion
        participants: Sequence[Any] = ()
        if companion is not None:
            outcome.receipt.update(companion.receipt_members())
            participants = companion.finalising(outcome.status)
        finaliser = shop.finaliser
        end = finaliser.finish_at_once if at_once else finaliser.finish
        done = await end(row.tenant, row.job_id, outcome, participants, large=self._large)
        if done:
            self.ended = outcome.status.value
            shop.recorder.completed(row.language, outcome.status.value)
            for kind in _cut(outcome):
                shop.recorder.truncated(kind)
        return done

    async def _append(self, drafts: Sequence[Draft]) -> Sequence[WireEvent]:
        return await self._shop.store.run(
            Append(job_id=self._row.job_id, events=tuple(drafts), now_ms=self._shop.clock())
        )

    def _publish(self, events: Sequence[WireEvent]) -> None:
        self._shop.live.publish(self._row.job_id, events)

    async def _history(self) -> Sequence[WireEvent]:
        """What is stored of this job, tried until it can be read."""
        for wait in store_retry():
            try:
                return await self._shop.store.read(lambda reads: history(reads, self._row.job_id))
            except Exception as error:  # noqa: BLE001 - tried until the store answers
                log.warning(
                    "job %s: its history could not be read yet (%s)", self._row.job_id, named(error)
                )
            await anyio.sleep(wait)
        raise AssertionError("the waits never end")


class _Permit:
    """The one decision whether a job runs, asked for before its sandbox is begun or meanwhile."""

    def __init__(self, decide: Callable[[], Awaitable[bool]]) -> None:
        self._decide = decide
        self.asked = False
        self.fault: Exception | None = None  # ours; an executor may have taken it for its own

    async def ask(self) -> bool:
        self.asked = True
        try:
            return await self._decide()
        except Exception as error:
            self.fault = error
            raise


def _status_of(execution: Execution) -> JobStatus:
    """How the executor saw it end; what is said of the job may be worse."""
    if execution.stopped_before_launch is not None:
        return JobStatus.CANCELLED
    return JobStatus.ERROR if execution.report is None else execution.report.status


def _cut(outcome: Outcome) -> list[str]:
    """What of a job's output or evidence is not whole."""
    output = outcome.receipt.get("output") or {}
    cut = [
        stream
        for stream in ("stdout", "stderr")
        if (output.get(f"{stream}_bytes_seen") or 0) > output.get(f"{stream}_bytes", 0)
    ]
    return cut if outcome.receipt.get("evidence_complete", True) else [*cut, "evidence"]


def _refused(spec: JobSpec | None, killed_by: KilledBy | None) -> Outcome:
    """A guard ended the job; a spec that does not decode leaves the core members to speak."""
    receipt = {"killed_by": killed_by} if spec is None else unrun_members(spec, killed_by)
    return Outcome(status=JobStatus.ERROR, receipt=receipt)


def _setup_failed() -> dict[str, Any]:
    return {"rule": Rule.ARTIFACT_SETUP_FAILED, "detail": {"code": ExecutorFault.FAILURE}}
