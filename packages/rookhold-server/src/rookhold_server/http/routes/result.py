"""The outcome and the output of a job, waited for if asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookhold_server.http.large import Large, respond_large
from rookhold_server.http.query import Query
from rookhold_server.http.routes.waiting import wait_for
from rookhold_server.refusal import Refusal
from rookhold_types.states import TERMINAL
from rookhold_types.wire import encode

if TYPE_CHECKING:
    from rookhold_server.http.call import Call
    from rookhold_server.http.services import Services


async def result(call: Call, services: Services) -> None:
    seconds = Query(call).integer(
        "wait_seconds", low=0, high=300, default=60, refusal="invalid_wait_seconds"
    )
    engine, tenant = services.engine, call.principal.tenant
    job_id = call.path_parameter("job_id")
    job = await engine.summary(tenant, job_id)
    if job is None:
        raise Refusal("job_not_found")
    if seconds and job.status not in TERMINAL:
        ended = False

        async def waiting() -> None:
            nonlocal ended
            ended = await engine.wait_terminal(tenant, job_id, float(seconds))

        await wait_for(call, services, waiting)
        if not ended and engine.shutting_down:
            raise Refusal("shutting_down")

    async def read() -> Large:
        view = await engine.result(tenant, job_id)
        return Large(status=200 if view.status in TERMINAL else 202, body=encode(view))

    await respond_large(call, services, read)
