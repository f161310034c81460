"""Waiting on a job on behalf of a client that may leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from rookhold_server.http.transport import ClientGoneError
from rookhold_server.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rookhold_server.http.call import Call
    from rookhold_server.http.services import Services


async def wait_for(
    call: Call, services: Services, waiting: Callable[[], Awaitable[object]]
) -> None:
    """Hold a wait permit while `waiting` runs; end both when the client goes.

    Refusal `shutting_down` where shutdown has begun already.
    """
    if services.engine.shutting_down:
        raise Refusal("shutting_down")
    gone = True
    refusal: Refusal | None = None
    async with (
        services.pools.result_waits.hold(call.principal.tenant),
        anyio.create_task_group() as tasks,
    ):

        async def watch() -> None:
            await call.until_gone()
            tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        try:
            await waiting()
        except Refusal as told:  # as it is: a task group would wrap it
            refusal = told
        gone = False
        tasks.cancel_scope.cancel()
    if gone:
        raise ClientGoneError
    if refusal is not None:
        raise refusal
