"""Jobs of long ago, for a sweep to remove: written into the database of a server that is dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rookhold_store import Append, Finalise, Start, Store
from rookhold_store.testing import Jobs, TickingClock, anything_binds
from rookhold_types.ids import new_job_id
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from faults.book import Book

    from rookhold_store.operations import Operation

LONG_AGO_MS: Final = 1_000_000_000_000
TENANT: Final = "past"
LONG_BATCHES: Final = 20  # more events than one transaction of a sweep removes
LINES: Final = [("stdout", {"line": "long ago", "eol": True})] * 256


class Past:
    def __init__(self, database: Path) -> None:
        self._database = database

    def add(self, jobs: int) -> None:
        """Write finished jobs, some with a key, some signed, and one with a long history."""
        clock = TickingClock(LONG_AGO_MS)
        with Store.open(self._database, binding=anything_binds, clock=clock) as store:
            lives = Jobs(store)
            keys = [new_job_id() if number % 2 else None for number in range(jobs)]
            accepted = [lives.acceptance(tenant=TENANT, key=key) for key in keys]
            ids = [op.job_id for op in accepted]
            _all(store, accepted)
            _all(store, [Start(job_id=each, now_ms=clock()) for each in ids])
            _all(store, [Append(job_id=each, events=LINES[:3], now_ms=clock()) for each in ids])
            _all(store, [_append(ids[0], clock) for _ in range(LONG_BATCHES)])
            _all(store, [_end(each, clock) for each in ids])
            _all(store, [lives.attestation(each) for each in ids[::3]])

    @staticmethod
    def left(book: Book) -> int:
        """Return how many events of them are still there."""
        text = (
            "SELECT count(*) FROM events WHERE job_id IN (SELECT job_id FROM jobs WHERE tenant = ?)"
        )
        return int(book.db.execute(text, (TENANT,)).get)

    @staticmethod
    def gone(book: Book) -> bool:
        return not book.db.execute("SELECT 1 FROM jobs WHERE tenant = ?", (TENANT,)).fetchall()


def _append(job_id: str, clock: TickingClock) -> Append:
    return Append(job_id=job_id, events=LINES, now_ms=clock())


def _end(job_id: str, clock: TickingClock) -> Finalise:
    return Finalise(
        job_id=job_id,
        status=JobStatus.SUCCEEDED,
        exit_code=0,
        now_ms=clock(),
        duration_ms=7,
        receipt={"killed_by": None},
    )


def _all(store: Store, operations: Sequence[Operation[Any]]) -> None:
    """Do them in this order, and as many as can be in one commit."""
    for future in [store.submit(operation) for operation in operations]:
        future.result()
