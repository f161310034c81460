"""Jobs of long ago, for a sweep to remove: written into the database of a server that is dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rookhold_store import Append, Store
from rookhold_store.testing import Jobs, TickingClock, anything_binds
from rookhold_types.ids import new_job_id

if TYPE_CHECKING:
    from pathlib import Path

    from faults.book import Book

LONG_AGO_MS: Final = 1_000_000_000_000
TENANT: Final = "past"
LONG_BATCHES: Final = 20  # more events than one transaction of a sweep removes


class Past:
    def __init__(self, database: Path) -> None:
        self._database = database

    def add(self, jobs: int) -> None:
        """Write finished jobs, some with a key, some signed, and one with a long history."""
        clock = TickingClock(LONG_AGO_MS)
        with Store.open(self._database, binding=anything_binds, clock=clock) as store:
            lives = Jobs(store)
            for number in range(jobs):
                key = new_job_id() if number % 2 else None
                job_id = lives.finished(tenant=TENANT, key=key)
                if number % 3 == 0:
                    store.call(lives.attestation(job_id))
            long = lives.running(tenant=TENANT)
            lines = [("stdout", {"line": "long ago", "eol": True})] * 256
            for _ in range(LONG_BATCHES):
                store.call(Append(job_id=long, events=lines, now_ms=clock()))
            lives.finalise(long)

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
