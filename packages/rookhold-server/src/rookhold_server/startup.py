"""Opening everything a gateway needs, in the order in which a failure does the least harm."""

from __future__ import annotations

import logging
import os
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from rookhold_attestation import binds, profile
from rookhold_exec.select import choose_backend, open_chosen
from rookhold_server import __version__
from rookhold_server.config.address import Address
from rookhold_server.config.execution import exec_settings
from rookhold_server.config.guards import check_backend, check_exposure, check_settings
from rookhold_server.config.jobs_root import check_jobs_root, ensure_jobs_root
from rookhold_server.config.state_directory import (
    check_usable,
    ensure_database_directory,
    ensure_state_directory,
)
from rookhold_server.config.tls import listener_tls
from rookhold_server.descriptors import claim_descriptors
from rookhold_server.errors import ConflictingSettingError
from rookhold_server.http.app import ROUTES, Application
from rookhold_server.http.capacity import Pools
from rookhold_server.http.readiness import Readiness
from rookhold_server.http.services import Services
from rookhold_server.http.stream.tickets import TicketBook
from rookhold_server.http.transport import Server, bind
from rookhold_server.identity.opening import Identity, open_identity
from rookhold_server.identity.rate_limit import RateLimiter
from rookhold_server.jobs.engine import Engine, EngineSettings, SignerConfig
from rookhold_server.jobs.room import foretell_refusals
from rookhold_server.metrics.recorder import SILENT
from rookhold_server.refusal import Refusal
from rookhold_server.supervisor.account import check_account
from rookhold_server.supervisor.grant import Grant, receive
from rookhold_server.tracing.opening import open_tracer
from rookhold_store import InstanceLock, StorageLimits, Store
from rookhold_types.clock import now_ms
from rookhold_types.isolation import Backend, IsolationClass
from rookhold_types.service import PublicKeyView

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import AsyncIterator

    from rookhold_attestation import PrivateKey
    from rookhold_exec.executor import Executor, Posture
    from rookhold_server.config.settings import Settings
    from rookhold_server.http.observing import Metrics
    from rookhold_server.metrics.prometheus import PrometheusRecorder
    from rookhold_server.tracing.spans import Tracer

_log = logging.getLogger(__name__)

_MIB: Final = 1024 * 1024

_TRUST_NOTICE: Final = (
    "This key is not a trust anchor: a server that signs can serve any key. "
    "Pin the key through another channel that you already trust."
)


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """Everything is open; nothing runs and nothing is served yet."""

    settings: Settings
    engine: Engine
    pools: Pools
    readiness: Readiness
    server: Server
    listener: socket.socket
    address: Address
    grant: Grant | None  # from the root process that started this one, where there is one
    identity: Identity


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Gateway]:
    """Open all of it, and close what was opened in the reverse order.

    Raises StartRefusedError, or the error of the store, the executor or the key that would not
    open. The listener is bound before the store is touched: a second process on the same address
    never gets that far.
    """
    claim_descriptors(settings)
    grant = None if settings.supervisor_fd is None else receive(settings.supervisor_fd)
    check_settings(settings, effective_uid=os.geteuid())
    check_account(settings.user)
    key = _signing_key(settings)
    tls = listener_tls(settings)
    identity = await open_identity(settings)
    await _check_metrics_token(settings, identity)
    if settings.state_directory is not None:
        ensure_state_directory(settings.state_directory)
    async with AsyncExitStack() as stack:
        executor = _executor(settings, grant)
        listener = bind(settings.address) if grant is None else grant.listener
        stack.callback(listener.close)
        address = Address(*listener.getsockname()[:2])
        check_exposure(settings, address)
        ensure_database_directory(settings.database.parent)
        lock = InstanceLock(settings.database)
        lock.acquire()
        stack.callback(lock.release)
        ensure_jobs_root(settings.jobs_root, strict=settings.production)
        if getattr(executor, "backend", None) == Backend.OFF:  # its jobs are of this account
            check_usable(settings.jobs_root, "the jobs root")
        limits = _storage_limits(settings)
        store = Store.open(
            settings.database,
            binding=binds,
            profile=str(profile.PROFILE_VERSION),
            clock=now_ms,
            limits=limits,
            tallied=True,
        )
        stack.callback(store.close)
        foretell_refusals(limits, settings.database.parent)
        stack.push_async_callback(_close, executor)
        if grant is None:
            settled = await open_chosen(settings.sandbox, executor, exec_settings(settings))
            if settled is not executor:
                executor = settled
                stack.push_async_callback(_close, executor)
        else:
            await executor.open()
        _check_posture(settings, address, executor.posture)
        recorder = _recorder(settings)
        tracer = open_tracer(settings.tracing, __version__)
        stack.callback(tracer.close)
        engine = Engine(
            store=store,
            executor=executor,
            settings=_engine_settings(settings),
            signer=None if key is None else SignerConfig(key=key),
            clock=now_ms,
            recorder=SILENT if recorder is None else recorder,
            tracer=tracer,
        )
        yield _assemble(
            settings, identity, engine, key, listener, address, grant, recorder, tracer, tls
        )


def _executor(settings: Settings, grant: Grant | None) -> Executor:
    if grant is None:
        return choose_backend(settings.sandbox, exec_settings(settings))
    told = exec_settings(settings, spawner=grant.spawner, surveyed=grant.surveyed)
    return choose_backend(grant.backend, told)


def _check_posture(settings: Settings, address: Address, posture: Posture) -> None:
    check_backend(settings, address, posture.isolation_class)
    if posture.isolation_class is not IsolationClass.NONE:
        check_jobs_root(settings.jobs_root, strict=True)
    _log.info(
        posture.note,
        extra={
            "backend": posture.backend,
            "isolation_class": posture.isolation_class,
            "languages": ",".join(posture.languages),
        },
    )


def _assemble(
    settings: Settings,
    identity: Identity,
    engine: Engine,
    key: PrivateKey | None,
    listener: socket.socket,
    address: Address,
    grant: Grant | None,
    recorder: PrometheusRecorder | None,
    tracer: Tracer,
    tls: ssl.SSLContext | None,
) -> Gateway:
    began = time.monotonic()
    pools = Pools()
    readiness = Readiness(engine)
    services = Services(
        engine=engine,
        pools=pools,
        readiness=readiness,
        authenticator=identity.authenticator,
        limiter=RateLimiter(settings.rate_per_minute, time.time),
        tickets=TicketBook(now_ms, time.monotonic),
        withdrawals=identity.withdrawals,
        recorder=SILENT if recorder is None else recorder,
        tracer=tracer,
        metrics=_metrics(settings, recorder, engine, pools, readiness),
        production=settings.production,
        workers=settings.workers,
        tenant_queue_capacity=settings.tenant_queue_capacity,
        public_key=None if key is None else _public_key_view(key),
        protected_resource=identity.protected_resource,
        uptime_seconds=lambda: int(time.monotonic() - began),
    )
    return Gateway(
        settings=settings,
        engine=engine,
        pools=pools,
        readiness=readiness,
        server=Server(Application(services), tls=tls),
        listener=listener,
        address=address,
        grant=grant,
        identity=identity,
    )


def _recorder(settings: Settings) -> PrometheusRecorder | None:
    """Nothing counts what nobody may see."""
    if settings.metrics_token is None:
        return None
    from rookhold_server.metrics.prometheus import PrometheusRecorder

    routes = {path: tuple(methods) for path, methods in ROUTES.items()}
    return PrometheusRecorder(version=__version__, revision="", routes=routes)


def _metrics(
    settings: Settings,
    recorder: PrometheusRecorder | None,
    engine: Engine,
    pools: Pools,
    readiness: Readiness,
) -> Metrics | None:
    if recorder is None or settings.metrics_token is None:
        return None
    from rookhold_server.http.observing import Metrics

    token = settings.metrics_token.text.encode()
    return Metrics(token, recorder, engine=engine, pools=pools, readiness=readiness)


async def _check_metrics_token(settings: Settings, identity: Identity) -> None:
    """A token that is also somebody's credential would hand the one out with the other."""
    if settings.metrics_token is None:
        return
    header = (b"authorization", b"Bearer " + settings.metrics_token.text.encode())
    try:
        await identity.authenticator.authenticate([header])
    except Refusal:
        return
    raise ConflictingSettingError("ROOKHOLD_METRICS_TOKEN", "is also the credential of a tenant")


def _engine_settings(settings: Settings) -> EngineSettings:
    return EngineSettings(
        version=__version__,
        workers=settings.workers,
        tenant_concurrency=settings.tenant_concurrency,
        tenant_weights=settings.tenant_weights,
        tenant_queue_capacity=settings.tenant_queue_capacity,
        max_job_mem_mb=settings.max_job_mem_mb,
        memory_budget_mb=settings.memory_budget_mb,
        retention_hours=settings.retention_hours,
        sweep_interval_seconds=settings.sweep_interval_seconds,
    )


def _storage_limits(settings: Settings) -> StorageLimits:
    return StorageLimits(
        global_bytes=settings.storage_global_mb * _MIB,
        tenant_bytes=settings.storage_tenant_mb * _MIB,
        free_reserve_bytes=settings.storage_free_reserve_mb * _MIB,
    )


def _signing_key(settings: Settings) -> PrivateKey | None:
    if not settings.signing_key_file:
        return None
    from rookhold_attestation import PrivateKey  # loads the cryptography

    return PrivateKey.load(settings.signing_key_file)


def _public_key_view(key: PrivateKey) -> PublicKeyView:
    return PublicKeyView(
        algorithm=profile.ALGORITHM,
        key_id=key.key_id,
        public_key_pem=key.public_key.to_pem(),
        trust_notice=_TRUST_NOTICE,
    )


async def _close(executor: Executor) -> None:
    with anyio.CancelScope(shield=True):
        await executor.close()
