"""Pools of permits: so many at once in all, so many of one tenant, and a bounded patience."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from rookhold_server.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class _Waiter:
    __slots__ = ("event", "granted", "tenant")

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        self.granted = False
        self.event = anyio.Event()


class Pool:
    """First come, first served, except that nobody waits behind a tenant that is at its limit.

    Only to be used on the event loop.
    """

    def __init__(
        self, *, total: int, per_tenant: int, full: str, tenant_full: str, patience: float = 0.0
    ) -> None:
        """`full` and `tenant_full` are the codes; `patience` is how long to wait, in seconds."""
        self._total = total
        self._per_tenant = per_tenant
        self._full = full
        self._tenant_full = tenant_full
        self._patience = patience
        self._held: dict[str, int] = {}
        self._used = 0
        self._waiters: list[_Waiter] = []
        self._closed = False

    @property
    def total(self) -> int:
        return self._total

    @property
    def used(self) -> int:
        return self._used

    @asynccontextmanager
    async def hold(self, tenant: str) -> AsyncIterator[None]:
        """Refusal with the pool's codes, the global one first, or `shutting_down` once closed."""
        await self._take(tenant)
        try:
            yield
        finally:
            self._give_back(tenant)

    def close(self) -> None:
        """Refuse from now on, those who wait included; permits already held stay valid."""
        self._closed = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.event.set()

    async def _take(self, tenant: str) -> None:
        if self._closed:
            raise Refusal("shutting_down")
        if self._has_room(tenant):
            self._grant(tenant)
            return
        if self._patience:
            waiter = _Waiter(tenant)
            self._waiters.append(waiter)
            try:
                with anyio.move_on_after(self._patience):
                    await waiter.event.wait()
            except BaseException:
                if waiter.granted:
                    self._give_back(tenant)
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
            if waiter.granted:
                return
            if self._closed:
                raise Refusal("shutting_down")
        raise Refusal(self._full if self._used >= self._total else self._tenant_full)

    def _has_room(self, tenant: str) -> bool:
        return self._used < self._total and self._held.get(tenant, 0) < self._per_tenant

    def _grant(self, tenant: str) -> None:
        self._used += 1
        self._held[tenant] = self._held.get(tenant, 0) + 1

    def _give_back(self, tenant: str) -> None:
        self._used -= 1
        if left := self._held[tenant] - 1:
            self._held[tenant] = left
        else:
            del self._held[tenant]
        for waiter in self._waiters:
            if self._has_room(waiter.tenant):
                self._waiters.remove(waiter)
                self._grant(waiter.tenant)
                waiter.granted = True
                waiter.event.set()
                return


class Pools:
    """Every pool of the HTTP side, in the sizes that are promised."""

    def __init__(self) -> None:
        body = {"full": "submit_body_capacity", "tenant_full": "tenant_submit_body_capacity"}
        self.small_bodies = Pool(total=64, per_tenant=32, patience=2.0, **body)
        self.other_bodies = Pool(total=4, per_tenant=2, patience=2.0, **body)
        self.result_waits = Pool(
            total=64,
            per_tenant=8,
            full="result_wait_capacity",
            tenant_full="tenant_result_wait_capacity",
        )
        self.large_responses = Pool(
            total=4,
            per_tenant=2,
            patience=2.0,
            full="response_capacity",
            tenant_full="tenant_response_capacity",
        )
        self.streams = Pool(
            total=128, per_tenant=16, full="stream_capacity", tenant_full="tenant_stream_capacity"
        )

    def close(self) -> None:
        for pool in (
            self.small_bodies,
            self.other_bodies,
            self.streams,
            self.result_waits,
            self.large_responses,
        ):
            pool.close()
