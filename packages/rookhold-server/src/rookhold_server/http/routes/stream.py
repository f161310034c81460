"""Live streams of one job, and the tickets that let a browser open one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookhold_server.http.stream.feed import Feed
from rookhold_server.http.stream.handshake import check_handshake
from rookhold_server.http.stream.opening import check_opening
from rookhold_server.http.stream.sse import serve_events
from rookhold_server.http.stream.watch import Watch
from rookhold_server.http.stream.websocket import Socket
from rookhold_server.identity.scopes import Scope
from rookhold_server.refusal import Refusal
from rookhold_types.views import StreamTicket
from rookhold_types.wire import encode

if TYPE_CHECKING:
    from rookhold_server.http.call import Call
    from rookhold_server.http.services import Services


async def ticket(call: Call, services: Services) -> None:
    job_id = call.path_parameter("job_id")
    if await services.engine.summary(call.principal.tenant, job_id) is None:
        raise Refusal("job_not_found")
    if services.engine.shutting_down:
        raise Refusal("shutting_down")
    minted = services.tickets.mint(call.principal, job_id)
    view = StreamTicket.of(job_id, minted.text, minted.expires_at_ms)
    await call.respond(200, encode(view))


async def websocket(call: Call, services: Services) -> None:
    agreed = check_handshake(call)
    after = await check_opening(call, services, resumable=False)
    async with services.pools.streams.hold(call.principal.tenant):
        tunnel = await call.switch(agreed)
        watch = _watch(call, services)
        await Socket(tunnel, watch).serve(_feed(call, services, after))


async def events(call: Call, services: Services) -> None:
    after = await check_opening(call, services, resumable=True)
    async with services.pools.streams.hold(call.principal.tenant):
        watch = _watch(call, services)
        await serve_events(call, _feed(call, services, after), watch)


def _watch(call: Call, services: Services) -> Watch:
    async def withdrawal() -> None:
        await services.withdrawals.of(call.principal, Scope.JOBS_READ)

    return Watch(services.engine.shutdown_event, withdrawal)


def _feed(call: Call, services: Services, after: int) -> Feed:
    engine = services.engine
    return Feed(engine, engine.live, call.principal.tenant, call.path_parameter("job_id"), after)
