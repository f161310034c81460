"""The layers that every request of the API group passes before its handler, in their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from rookhold_server.http.call import NO_STORE, Call
from rookhold_server.http.services import Services
from rookhold_server.identity.scopes import Scope
from rookhold_server.refusal import Refusal

if TYPE_CHECKING:
    from rookhold_server.identity.principal import Principal
    from rookhold_server.identity.rate_limit import Budget

Handler = Callable[[Call, Services], Awaitable[None]]
Identify = Callable[[Call, Services], Awaitable["Principal"]]


async def from_header(call: Call, services: Services) -> Principal:
    """Who calls, by the one header that every route takes."""
    return await services.authenticator.authenticate(call.raw_headers)


class Endpoint(Struct, frozen=True):
    """A handler, and the scope it needs; None for a public one, which passes no gate."""

    handler: Handler
    scope: Scope | None = None
    closes_if_unread: bool = False  # the connection rule for refused submissions
    identify: Identify = from_header
    has_head: bool = True  # whether HEAD is answered as GET would be, without the body


async def pass_through(call: Call, services: Services, endpoint: Endpoint) -> None:
    """Close guard, no-store, identity, rate, scope, handler; a body is capped by who reads it."""
    if endpoint.scope is not None:
        call.closes_if_unread = endpoint.closes_if_unread
        await admit(call, services, endpoint.identify)
        if endpoint.scope not in call.principal.scopes:
            scope = endpoint.scope.value
            raise Refusal(
                "insufficient_scope",
                f"The credential lacks the scope {scope}, which this route needs.",
                scope=scope,
            )
    await endpoint.handler(call, services)


async def admit(call: Call, services: Services, identify: Identify = from_header) -> None:
    """Find out who calls, and count it: what everything but a scope has in common."""
    call.headers.extend(NO_STORE)
    call.principal = await identify(call, services)
    call.headers.extend(_budget_headers(services.limiter.take(call.principal.tenant)))


def _budget_headers(budget: Budget) -> tuple[tuple[bytes, bytes], ...]:
    return (
        (b"x-ratelimit-limit", b"%d" % budget.limit),
        (b"x-ratelimit-remaining", b"%d" % budget.remaining),
    )
