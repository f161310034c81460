"""What each operation costs on a populated store, for comparing a small history with a large one.

Two stores take turns at the same operation, in one process, so that what else the machine does
meets both alike.
"""

from __future__ import annotations

import secrets
import statistics
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import apsw

from rookhold_store.operations import CancelQueued
from rookhold_store.rows import Cursor
from rookhold_store.testing import Jobs
from rookhold_store.testing.population import LARGE_TENANTS, START_MS, key_of
from rookhold_types.jobs import JobSpec
from rookhold_types.states import JobStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rookhold_store.store import Store
    from rookhold_store.testing.population import Population

TENANT: Final = LARGE_TENANTS[0]  # more than half of all jobs: every page of it is full
LANGUAGE: Final = "python"
PAGE: Final = 50
RECORDS: Final = 16
WARM_UP: Final = 20  # turns that nobody counts
_SOME_KEY: Final = """
SELECT idempotency_key FROM idempotency_keys WHERE tenant = ? AND idempotency_key >= ? LIMIT 1
"""
_SPEC: Final = JobSpec(language="python", code="print('hello')\n" * 20)

Named: TypeAlias = "tuple[str, Callable[[], object]]"


class Paces:
    """One store, and everything that is asked of it, each time about other jobs."""

    def __init__(self, store: Store, population: Population, *, seed: int = 1) -> None:
        self._store = store
        self._jobs = Jobs(store)
        self._random = Random(seed)  # noqa: S311  # not for secrets
        self._end_ms = population.end_ms
        self._keys = self._sample_keys(population)

    def _sample_keys(self, population: Population) -> list[str]:
        db = apsw.Connection(str(self._store.path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            starts = [key_of(self._random.randrange(population.jobs // 2)) for _ in range(64)]
            return [db.execute(_SOME_KEY, (TENANT, start)).get for start in starts]
        finally:
            db.close()

    def turn(self) -> Iterator[Named]:
        """Yield each operation by name; what it is about is settled before it is timed."""
        yield from self._life()
        yield from self._lists()
        yield from self._look_ups()

    def _life(self) -> Iterator[Named]:
        jobs, store = self._jobs, self._store
        key = f"pace-{secrets.token_hex(8)}"  # new also in a store that was measured before
        acceptance = jobs.acceptance(tenant=TENANT, spec=_SPEC, key=key)
        job_id = acceptance.job_id
        lines = [f"record {n} of some output that a job prints" for n in range(RECORDS)]
        yield "accept", lambda: store.call(acceptance)
        yield "start", lambda: jobs.start(job_id)
        yield "append", lambda: jobs.append(job_id, *lines)
        yield "finalise", lambda: jobs.finalise(job_id)
        attestation = jobs.attestation(job_id)
        yield "attest", lambda: store.call(attestation)
        waiting = jobs.accept(tenant=TENANT, spec=_SPEC)
        cancel = CancelQueued(tenant=TENANT, job_id=waiting, now_ms=store.clock())
        yield "cancel", lambda: store.call(cancel)
        signed = jobs.attestation(waiting)
        store.call(signed)  # so that what is pending stays the same few

    def _lists(self) -> Iterator[Named]:
        reads = self._store.read
        statuses: tuple[str | None, ...] = (None, JobStatus.SUCCEEDED)
        for whose in (TENANT, None):
            for status in statuses:
                for wanted in (None, LANGUAGE):
                    name = _list_name(whose, status, wanted)
                    page = partial(reads.list_jobs, whose, PAGE, status=status, language=wanted)
                    yield f"first {name}", page
                    yield f"deep {name}", partial(page, cursor=self._somewhere())

    def _look_ups(self) -> Iterator[Named]:
        reads = self._store.read
        job_id = self._old_job()
        yield "detail", lambda: reads.get(TENANT, job_id)
        yield "summary", lambda: reads.summary(TENANT, job_id)
        yield "replay", lambda: reads.replay(TENANT, job_id)
        yield "attestation", lambda: reads.attestation(TENANT, job_id)
        key = self._random.choice(self._keys)
        yield "find key", lambda: reads.find_key(TENANT, key)
        yield "counts", lambda: reads.counts(TENANT)
        yield "charged bytes", lambda: reads.charged_bytes(TENANT)
        yield "pending attestations", lambda: reads.pending_attestations(self._end_ms, 32)
        yield "queued page", lambda: reads.queued_page(None, 256)
        yield "running ids", lambda: reads.running_ids(32)

    def _somewhere(self) -> Cursor:
        """Return a place in the older nine tenths, with a page before it in every small store."""
        share = 0.5 + 0.4 * self._random.random()
        return Cursor(START_MS + int((self._end_ms - START_MS) * share), "")

    def _old_job(self) -> str:
        return self._store.read.list_jobs(TENANT, 1, self._somewhere())[0].job_id


def _list_name(tenant: str | None, status: str | None, language: str | None) -> str:
    whose = " of all tenants" if tenant is None else ""
    filters = [name for name, value in (("status", status), ("language", language)) if value]
    return f"page{whose}{''.join(f', by {name}' for name in filters)}"


class Pair(NamedTuple):
    """Median seconds of one operation on both stores."""

    small: float
    large: float

    @property
    def ratio(self) -> float:
        return self.large / self.small


def compare(small: Paces, large: Paces, *, turns: int, seed: int = 1) -> dict[str, Pair]:
    """Return, by operation, what it takes on each; the two take turns, in random order."""
    random = Random(seed)  # noqa: S311  # not for secrets
    times: dict[str, tuple[list[float], list[float]]] = {}
    for number in range(WARM_UP + turns):
        for pair in zip(small.turn(), large.turn(), strict=True):
            kept = times.setdefault(pair[0][0], ([], []))
            for which in random.sample((0, 1), 2):
                began = time.perf_counter()
                pair[which][1]()
                taken = time.perf_counter() - began
                if number >= WARM_UP:
                    kept[which].append(taken)
    return {
        name: Pair(statistics.median(before), statistics.median(after))
        for name, (before, after) in times.items()
    }
