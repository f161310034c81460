"""Who may join the queue: leases on global and tenant slots."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Self

import anyio

from rookhold_server.refusal import Refusal

if TYPE_CHECKING:
    from types import TracebackType


class AdmissionClosedError(Exception):
    """The queue admits nothing any more."""


class Lease:
    """One global and one tenant slot; giving it back twice gives it back once."""

    __slots__ = ("_admission", "_held", "tenant")

    def __init__(self, admission: QueueAdmission, tenant: str) -> None:
        self._admission = admission
        self._held = True
        self.tenant = tenant

    def release(self) -> None:
        if self._held:
            self._held = False
            self._admission._give_back(self.tenant)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


class QueueAdmission:
    """Counts jobs that are still queued; all of it runs on the loop, so no step interleaves."""

    def __init__(self, *, capacity: int, tenant_capacity: int) -> None:
        self._capacity = capacity
        self._tenant_capacity = tenant_capacity
        self._total = 0
        self._by_tenant: Counter[str] = Counter()
        self._waiters: deque[anyio.Event] = deque()
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def total(self) -> int:
        return self._total

    def depth(self, tenant: str) -> int:
        return self._by_tenant.get(tenant, 0)

    def reserve(self, tenant: str) -> Lease:
        """Take both slots now or refuse; the tenant's limit is told before the global one."""
        if self._closed:
            raise Refusal("scheduler_unavailable")
        if self.depth(tenant) >= self._tenant_capacity:
            raise Refusal("tenant_queue_saturated")
        if self._total >= self._capacity:
            raise Refusal("queue_saturated")
        return self._take(tenant)

    async def readmit(self, tenant: str) -> Lease:
        """Wait for a global slot, whatever the tenant already has.

        Work accepted by an earlier process may exceed a tenant's limit; it then blocks only
        that tenant's new submissions. Raises AdmissionClosedError.
        """
        while not self._closed and self._total >= self._capacity:
            waiter = anyio.Event()
            self._waiters.append(waiter)
            try:
                await waiter.wait()
            except BaseException:
                self._forget(waiter)
                raise
        if self._closed:
            raise AdmissionClosedError
        return self._take(tenant)

    def close(self) -> None:
        self._closed = True
        while self._waiters:
            self._waiters.popleft().set()

    def _take(self, tenant: str) -> Lease:
        self._total += 1
        self._by_tenant[tenant] += 1
        return Lease(self, tenant)

    def _give_back(self, tenant: str) -> None:
        self._total -= 1
        self._by_tenant[tenant] -= 1
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]
        if self._waiters:
            self._waiters.popleft().set()

    def _forget(self, waiter: anyio.Event) -> None:
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif self._waiters:  # woken and cancelled at once: the slot goes to the next in line
            self._waiters.popleft().set()
