"""Where a client learns who gives out access tokens for this service."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookhold_server.refusal import Refusal
from rookhold_types.wire import encode

if TYPE_CHECKING:
    from rookhold_server.http.call import Call
    from rookhold_server.http.services import Services


async def protected_resource(call: Call, services: Services) -> None:
    if services.protected_resource is None:
        raise Refusal("oauth_not_configured")
    await call.respond(200, encode(services.protected_resource))
