"""Whose job is next: one FIFO per tenant, a weighted ring of tenants, permits for what runs."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rookhold_server.jobs.admission import Lease
    from rookhold_server.tracing.spans import Span


class Pending:
    """A queued job on its way to a worker, with the lease that counts it."""

    __slots__ = (
        "admitted_mem_mb",
        "cancelled",
        "job_id",
        "large",
        "lease",
        "origin",
        "permit_mb",
        "tenant",
    )

    def __init__(
        self,
        *,
        job_id: str,
        tenant: str,
        admitted_mem_mb: int,
        permit_mb: int,
        lease: Lease,
        large: bool = True,
        origin: Span | None = None,
    ) -> None:
        self.job_id = job_id
        self.tenant = tenant
        self.admitted_mem_mb = admitted_mem_mb  # as it was at acceptance; the worker compares
        self.permit_mb = permit_mb  # of the memory budget, uncharged tmpfs included
        self.lease = lease
        self.large = large  # its spec may take a while to read
        self.origin = origin  # the request that brought it, where this process had it
        self.cancelled = False  # ended in the store already; only its turn is left to take


class Grant:
    """A job with its tenant slot and memory permit, from hand-over to the end of finalisation."""

    __slots__ = ("held_mb", "pending")

    def __init__(self, pending: Pending, held_mb: int) -> None:
        self.pending = pending
        self.held_mb = held_mb


class FairQueue:
    """Takes one decision at a time; never waits and knows no workers.

    Strict FIFO within a tenant, at most its weight in jobs per tenant and turn, and no job
    overtakes an older one that waits for memory.
    """

    def __init__(
        self, *, concurrency: int, budget_mb: int, weights: Mapping[str, int] | None = None
    ) -> None:
        self._concurrency = concurrency
        self._budget_mb = budget_mb
        self._weights = dict(weights or {})
        self._queues: dict[str, deque[Pending]] = {}
        self._ring: deque[str] = deque()
        self._given = 0  # jobs that the tenant in front got in its present turn
        self._running: Counter[str] = Counter()
        self._held_mb = 0

    @property
    def held_mb(self) -> int:
        return self._held_mb

    def running(self, tenant: str) -> int:
        return self._running.get(tenant, 0)

    def waiting(self, tenant: str) -> int:
        """How many of the tenant's jobs are here, those that were cancelled meanwhile too."""
        return len(self._queues.get(tenant, ()))

    def share(self, tenant: str) -> float:
        """Which part of what comes free the tenant gets while all who wait now go on waiting."""
        own = self._weight(tenant)
        others = sum(self._weight(other) for other in self._ring if other != tenant)
        return own / (own + others)

    def add(self, pending: Pending) -> None:
        queue = self._queues.get(pending.tenant)
        if queue is None:
            self._queues[pending.tenant] = queue = deque()
            self._ring.append(pending.tenant)
        queue.append(pending)

    def take(self) -> Grant | None:
        """Return the next job with its permits, or None where the pass ends."""
        for _ in range(len(self._ring)):
            tenant = self._ring[0]
            if self._running[tenant] >= self._concurrency:
                self._next_tenant()
                continue
            queue = self._queues[tenant]
            cost = min(queue[0].permit_mb, self._budget_mb)
            if self._held_mb + cost > self._budget_mb:
                return None  # and the tenant keeps the front: nobody smaller overtakes it
            return self._grant(tenant, queue, cost)
        return None

    def give_back(self, grant: Grant) -> None:
        tenant = grant.pending.tenant
        self._held_mb -= grant.held_mb
        self._running[tenant] -= 1
        if not self._running[tenant]:
            del self._running[tenant]

    def find(self, tenant: str, job_id: str) -> tuple[int, Pending] | None:
        """The job's place among the tenant's waiting jobs, from 1, cancelled ones not counted."""
        place = 0
        for pending in self._queues.get(tenant, ()):
            place += not pending.cancelled
            if pending.job_id == job_id:
                return max(place, 1), pending
        return None

    def drain(self) -> list[Pending]:
        """Empty every queue; their rows stay as they are."""
        left = [pending for queue in self._queues.values() for pending in queue]
        self._queues.clear()
        self._ring.clear()
        self._given = 0
        return left

    def _grant(self, tenant: str, queue: deque[Pending], cost: int) -> Grant:
        pending = queue.popleft()
        self._held_mb += cost
        self._running[tenant] += 1
        self._given += 1
        if not queue:
            del self._queues[tenant]
            self._ring.popleft()
            self._given = 0
        elif self._given >= self._weight(tenant):
            self._next_tenant()
        return Grant(pending, cost)

    def _weight(self, tenant: str) -> int:
        return self._weights.get(tenant, 1)

    def _next_tenant(self) -> None:
        self._ring.rotate(-1)
        self._given = 0
