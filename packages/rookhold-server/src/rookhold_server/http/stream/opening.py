"""Who may open a stream, and where in a job's history it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rookhold_server.http.query import Query
from rookhold_server.identity.scopes import Scope
from rookhold_server.refusal import Refusal

if TYPE_CHECKING:
    from rookhold_server.http.call import Call
    from rookhold_server.http.services import Services
    from rookhold_server.identity.principal import Principal

_SEQ_MAX: Final = 2**63 - 1


async def from_ticket(call: Call, services: Services) -> Principal:
    """An `Authorization` header counts alone; without one a ticket does, and is spent.

    Refusals as for any route, or `invalid_stream_ticket`.
    """
    return await _principal(call, services, keys=False)


async def from_ticket_or_key(call: Call, services: Services) -> Principal:
    """The same, and `?key=` after it outside production."""
    return await _principal(call, services, keys=not services.production)


async def _principal(call: Call, services: Services, *, keys: bool) -> Principal:
    if call.header(b"authorization"):
        return await services.authenticator.authenticate(call.raw_headers)
    query = Query(call)
    ticket = query.text("ticket", refusal="invalid_stream_ticket")
    if ticket is not None:
        job_id = call.path_parameter("job_id")
        principal = services.tickets.spend(ticket, job_id)
        if (
            principal is None
            or services.engine.shutting_down
            or not services.withdrawals.stands(principal, Scope.JOBS_READ)
        ):
            raise Refusal("invalid_stream_ticket")
        return principal
    key = query.text("key", refusal="invalid_api_key") if keys else None
    if key is None:
        raise Refusal("missing_api_key")
    try:
        bearer = b"Bearer " + key.encode()
        return await services.authenticator.authenticate([(b"authorization", bearer)])
    except Refusal:
        raise Refusal("invalid_api_key") from None


async def check_opening(call: Call, services: Services, *, resumable: bool) -> int:
    """Return the `seq` after which the stream begins.

    Refusal `shutting_down`, `job_not_found` or `invalid_event_cursor`, in that order. A `resumable`
    stream also takes the header that browsers send when they connect again.
    """
    if services.engine.shutting_down:
        raise Refusal("shutting_down")
    job_id = call.path_parameter("job_id")
    if await services.engine.summary(call.principal.tenant, job_id) is None:
        raise Refusal("job_not_found")
    after = Query(call).integer(
        "after", low=0, high=_SEQ_MAX, default=0, refusal="invalid_event_cursor"
    )
    if not resumable:
        return after
    return max(after, _last_event_id(call.header(b"last-event-id")))


def _last_event_id(values: list[bytes]) -> int:
    if not values:
        return 0
    text = values[0].decode("latin-1")
    if len(values) > 1 or not (text.isascii() and text.isdigit() and len(text) < 20):
        raise Refusal("invalid_event_cursor")
    if (number := int(text)) > _SEQ_MAX:
        raise Refusal("invalid_event_cursor")
    return number
