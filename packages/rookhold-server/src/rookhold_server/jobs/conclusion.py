"""From an execution to an outcome: outputs, contradictions, what was lost, the receipt."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from rookhold_exec.executor import Provenance, Report
from rookhold_server.evidence.isolation import contradicts, mismatch
from rookhold_server.evidence.outputs import (
    artifact_event,
    check_collection,
    collection_failed,
)
from rookhold_server.evidence.receipt import executed
from rookhold_server.evidence.retained import Retained
from rookhold_server.jobs.away import away
from rookhold_server.jobs.outcome import Outcome
from rookhold_types.events import EventKind, WireEvent
from rookhold_types.receipts import effective_stored_spec
from rookhold_types.states import JobStatus, KilledBy

if TYPE_CHECKING:
    from rookhold_server.jobs.execution import Execution
    from rookhold_server.jobs.pump import EventPump
    from rookhold_types.jobs import JobSpec

History = Callable[[], Awaitable[Sequence[WireEvent]]]


async def conclude(
    spec: JobSpec,
    execution: Execution,
    pump: EventPump,
    *,
    backend: str,
    history: History,
    large: bool,
) -> Outcome:
    """Store what is still to be said about a run, then say how it ended.

    A failed commit leaves doubt about what is stored; `history` then settles it. What the pump
    holds back, or owes, goes into the outcome, as if it were stored.
    """
    report = execution.report
    if report is None:
        fault = execution.fault
        await pump.add([] if fault is None else [(EventKind.VIOLATION, fault)])
        provenance = Provenance.never_ready(backend)
        ending = _Ending(JobStatus.ERROR, None, None)
        if execution.runtime_gone:
            ending.error(KilledBy.RUNTIME_UNAVAILABLE)
        artifacts: list[dict[str, Any]] = []
    else:
        provenance = report.provenance
        ending = _Ending(report.status, report.exit_code, report.killed_by)
        artifacts = await _store_outputs(spec, report, pump, ending)
        await _check_isolation(spec, report, pump, ending)
    if pump.source_failed or pump.broken:
        ending.error(KilledBy.EVENT_PUMP_FAILED if pump.broken else KilledBy.EVENT_PRODUCER_STOPPED)
    retained, last_events = pump.closing()
    owed = pump.marks_owed()
    if pump.in_doubt:
        events = await history()
        retained = Retained.from_history(events)
        artifacts = [event.data for event in events if event.kind == EventKind.ARTIFACT]
        for event in events:
            if event.kind == EventKind.TRUNCATED:
                owed.pop(event.data["stream"], None)
    if owed:
        retained = retained.copy()
        retained.truncated = True
    receipt = await away(
        lambda: executed(
            spec,
            report,
            provenance,
            killed_by=ending.killed_by,
            retained=retained,
            artifacts=artifacts,
            evidence_complete=pump.complete,
        ),
        large=large,
    )
    return Outcome(
        status=ending.status,
        exit_code=ending.exit_code,
        duration_ms=0 if report is None else report.wall_time_ms,
        receipt=receipt,
        events=(*last_events, *owed.values()),
        effective_spec=effective_stored_spec(
            spec,
            limits=provenance.effective_limits,
            isolation_class=str(provenance.isolation_class) if provenance.bootstrap_ready else None,
        ),
    )


class _Ending:
    """How the job ends, as far as is known; a later finding may only make it an error."""

    def __init__(self, status: JobStatus, exit_code: int | None, killed_by: str | None) -> None:
        self.status = status
        self.exit_code = exit_code
        self.killed_by = killed_by

    def error(self, killed_by: KilledBy) -> None:
        self.status, self.killed_by = JobStatus.ERROR, killed_by


async def _store_outputs(
    spec: JobSpec, report: Report, pump: EventPump, ending: _Ending
) -> list[dict[str, Any]]:
    """Store each good output as an event of its own, then name the others; return the stored."""
    if not report.provenance.bootstrap_ready:
        return []  # nothing ran that could have written one
    collection = check_collection(spec.outputs, report.collected, report.uncollected)
    stored: list[dict[str, Any]] = []
    for output in collection.good:
        data = artifact_event(output)
        if await pump.add([(EventKind.ARTIFACT, data)]):
            stored.append(data)
    if collection.lost:
        await pump.add([(EventKind.VIOLATION, collection_failed(collection.lost))])
    if len(stored) < len(spec.outputs) and ending.status is JobStatus.SUCCEEDED:
        ending.error(KilledBy.REQUESTED_OUTPUT_UNAVAILABLE)
    return stored


async def _check_isolation(spec: JobSpec, report: Report, pump: EventPump, ending: _Ending) -> None:
    minimum = spec.requirements.minimum_isolation
    if contradicts(report.status, report.provenance, minimum):
        await pump.add([(EventKind.VIOLATION, mismatch(report.provenance, minimum))])
        ending.error(KilledBy.MINIMUM_ISOLATION_OBSERVATION_MISMATCH)
