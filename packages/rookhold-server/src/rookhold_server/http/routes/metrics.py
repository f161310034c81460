"""The operator's metrics, behind a token of their own; and each tenant's, behind its credential."""

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


TENANT_TEXT: Final = b"text/plain; version=0.0.4"


async def tenant(call: Call, services: Services) -> None:
    """What the caller's tenant has now; whose it is, no label says."""
    of, engine = call.principal.tenant, services.engine
    counts = await engine.job_counts(of)
    lines = [
        "# HELP rookhold_jobs_current Jobs that there are.",
        "# TYPE rookhold_jobs_current gauge",
        *(
            f'rookhold_jobs_current{{status="{status}"}} {count}'
            for status, count in sorted(counts.items())
        ),
        "# HELP rookhold_job_lifecycle_owners_current Jobs that wait for a worker or have one.",
        "# TYPE rookhold_job_lifecycle_owners_current gauge",
        f"rookhold_job_lifecycle_owners_current {engine.owned(of)}",
        "",
    ]
    await call.respond(200, "\n".join(lines).encode(), content_type=TENANT_TEXT)


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
