"""A whole event history, read page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rookhold_server.jobs.ports import JobReads
    from rookhold_types.events import WireEvent

PAGE_EVENTS = 5000


def history(reads: JobReads, job_id: str) -> list[WireEvent]:
    """Every stored event of the job, ascending. Its size is bounded by the output limits."""
    events: list[WireEvent] = []
    while True:
        page = reads.events_after(job_id, events[-1].seq if events else 0, PAGE_EVENTS)
        events.extend(page)
        if len(page) < PAGE_EVENTS:
            return events
