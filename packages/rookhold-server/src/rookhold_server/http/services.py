"""What handlers share: the engine, the pools, and the facts of this process."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rookhold_server.identity.withdrawals import Withdrawals
from rookhold_server.metrics.recorder import SILENT
from rookhold_server.tracing.spans import UNTRACED

if TYPE_CHECKING:
    from collections.abc import Callable

    from rookhold_server.http.capacity import Pools
    from rookhold_server.http.observing import Metrics
    from rookhold_server.http.readiness import Readiness
    from rookhold_server.http.stream.tickets import TicketBook
    from rookhold_server.identity.authentication import Authenticator
    from rookhold_server.identity.rate_limit import RateLimiter
    from rookhold_server.jobs.engine import Engine
    from rookhold_server.metrics.recorder import Recorder
    from rookhold_server.tracing.spans import Tracer
    from rookhold_types.service import ProtectedResourceView, PublicKeyView


@dataclass(frozen=True, kw_only=True)
class Services:
    engine: Engine
    pools: Pools
    readiness: Readiness
    authenticator: Authenticator
    limiter: RateLimiter
    tickets: TicketBook
    withdrawals: Withdrawals = field(default_factory=Withdrawals.never)
    recorder: Recorder = SILENT
    tracer: Tracer = UNTRACED
    metrics: Metrics | None = None  # None while no token is configured
    production: bool
    workers: int
    tenant_queue_capacity: int
    public_key: PublicKeyView | None  # None while signing is off
    protected_resource: ProtectedResourceView | None = None  # None without an OpenID provider
    uptime_seconds: Callable[[], int]
