"""One job: its detail, its cancellation, its stored events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rookhold_server.http.large import Large, respond_large
from rookhold_server.http.query import Query
from rookhold_server.refusal import Refusal
from rookhold_types.wire import encode

if TYPE_CHECKING:
    from rookhold_server.http.call import Call
    from rookhold_server.http.services import Services

_SEQ_MAX: Final = 2**63 - 1


async def detail(call: Call, services: Services) -> None:
    job_id = call.path_parameter("job_id")

    async def read() -> Large:
        return Large(body=encode(await services.engine.detail(call.principal.tenant, job_id)))

    await respond_large(call, services, read)


async def cancel(call: Call, services: Services) -> None:
    answer = await services.engine.cancel(call.principal.tenant, call.path_parameter("job_id"))
    await call.respond(200, encode(answer))


async def replay(call: Call, services: Services) -> None:
    tenant, job_id = call.principal.tenant, call.path_parameter("job_id")
    if await services.engine.summary(tenant, job_id) is None:
        raise Refusal("job_not_found")
    query = Query(call)
    query.allow_only("after", "limit")
    after = query.integer("after", low=0, high=_SEQ_MAX, default=0, refusal="invalid_event_cursor")
    limit = query.integer("limit", low=1, high=5000, default=1000, refusal="invalid_limit")

    async def read() -> Large:
        return Large(body=encode(await services.engine.replay(tenant, job_id, after, limit)))

    await respond_large(call, services, read)
