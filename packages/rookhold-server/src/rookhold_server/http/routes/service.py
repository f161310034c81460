"""The service itself: what it offers, how it is, who is asking, whether it lives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rookhold_server import __version__
from rookhold_server.http.call import NO_STORE
from rookhold_server.identity.scopes import in_order
from rookhold_server.refusal import Refusal
from rookhold_types.service import SchedulerStatus, Status, WhoAmI
from rookhold_types.wire import encode

if TYPE_CHECKING:
    from rookhold_server.http.call import Call
    from rookhold_server.http.services import Services

_OK: Final = b'{"ok":true}'


async def capabilities(call: Call, services: Services) -> None:
    await call.respond(200, encode(services.engine.capabilities()))


async def status(call: Call, services: Services) -> None:
    engine = services.engine
    execution = engine.capabilities().execution
    tenant = engine.tenant_status(call.principal.tenant)
    answer = Status(
        version=__version__,
        sandbox=execution.backend,
        uptime_seconds=services.uptime_seconds(),
        environment="production" if services.production else "development",
        execution=execution,
        scheduler=SchedulerStatus(
            workers=services.workers,
            queue_capacity=services.tenant_queue_capacity,
            queue_depth=tenant.queue_depth,
            running=tenant.running,
            shutting_down=engine.shutting_down,
        ),
        storage_ready=services.readiness.storage_ready,
    )
    await call.respond(200, encode(answer))


async def whoami(call: Call, services: Services) -> None:
    del services
    caller = call.principal
    answer = WhoAmI(
        tenant=caller.tenant,
        principal_id=caller.principal_id,
        credential_id=caller.credential_id,
        auth_method=caller.auth_method,
        scopes=in_order(caller.scopes),
        expires_at_ms=caller.expires_at_ms,
    )
    await call.respond(200, encode(answer))


async def healthz(call: Call, services: Services) -> None:
    del services
    call.headers.append(NO_STORE[0])
    await call.respond(200, _OK)


async def readyz(call: Call, services: Services) -> None:
    call.headers.append(NO_STORE[0])
    if (refusal := services.readiness.refusal()) is not None:
        raise Refusal(refusal)
    await call.respond(200, _OK)
