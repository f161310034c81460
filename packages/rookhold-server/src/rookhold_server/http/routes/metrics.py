"""The operator's metrics, behind a token of their own."""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Final

from rookhold_server.http.call import NO_STORE
from rookhold_server.refusal import Refusal

if TYPE_CHECKING:
    from rookhold_server.http.call import Call
    from rookhold_server.http.services import Services

_BEARER: Final = re.compile(rb"bearer ([\x21-\x7e]+)", re.IGNORECASE)


async def operator(call: Call, services: Services) -> None:
    call.headers.append(NO_STORE[0])
    metrics = services.metrics
    if metrics is None:
        raise Refusal("metrics_disabled")
    given = call.header(b"authorization")
    match = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
    if match is None or not hmac.compare_digest(match[1], metrics.token):
        raise Refusal("invalid_metrics_token")
    accept = b",".join(call.header(b"accept")).decode("latin-1")
    content_type, body = await metrics.tell(accept)
    await call.respond(200, body, content_type=content_type, headers=((b"vary", b"accept"),))
