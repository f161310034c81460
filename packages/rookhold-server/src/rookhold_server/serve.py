"""One gateway process from its first line to its exit status."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Final

import anyio

from rookhold_attestation import AttestationError
from rookhold_server import arenas, logs, supervisor
from rookhold_server.config.file import gathered
from rookhold_server.config.settings import Settings, read_settings
from rookhold_server.descriptors import parent_gone, tell_ready
from rookhold_server.signals import Signals
from rookhold_server.startup import Gateway, opened
from rookhold_types.errors import RookholdError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_log = logging.getLogger(__name__)

_USAGE: Final = "usage: python -m rookhold_server   (settings come from ROOKHOLD_* variables)\n"
_EXIT_USAGE: Final = 64
# With the default of 5 ms a busy thread delays the store's writer by as much, at every commit.
_SWITCH_SECONDS: Final = 0.0005
_READY_POLL_SECONDS: Final = 0.01


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until told to stop: 0, or 1 after a refused start or a fatal fault."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments:
        sys.stderr.write(_USAGE)
        return _EXIT_USAGE
    sys.setswitchinterval(_SWITCH_SECONDS)
    arenas.limit()
    logs.configure("compact", "info")
    try:
        environ = gathered(os.environ)
        if supervisor.wanted(environ):  # a process of this size does not stay root
            python = [sys.executable, "-P", "-m", "rookhold_server"]
            os.execve(python[0], python, environ)  # noqa: S606 - our own interpreter
        settings = read_settings(environ)
        logs.configure(settings.log_format, settings.log_level)
        return anyio.run(serve, settings)
    except (RookholdError, AttestationError) as refused:
        _log.error("refused to start: %s", refused, extra={"code": refused.code})
    except KeyboardInterrupt:
        _log.info("interrupted while starting")
    except Exception as exc:  # noqa: BLE001 - the last edge: the log is all that is left
        _log.critical("failed", exc_info=exc, extra={"code": "internal_error"})
    return 1


async def serve(settings: Settings) -> int:
    """Raises what `startup.opened` raises. From its end on, requests to stop are ignored."""
    # In production, where no terminal can go away, a needless request to reload must not end us.
    reloads = settings.production or settings.credentials_file is not None
    with Signals(reloads=reloads) as signals:
        _warn(settings)
        async with opened(settings) as gateway:
            await _run(gateway, signals)
            fatal = gateway.engine.fatal
    if fatal is not None:
        _log.critical("ended by a fatal fault", extra={"diagnosis": fatal})
        return 1
    _log.info("stopped")
    return 0


async def _run(gateway: Gateway, signals: Signals) -> None:
    """Run engine and listener until both have ended; whoever ends first ends the other."""
    engine, server = gateway.engine, gateway.server
    started = anyio.Event()

    def stop() -> None:
        # Pools before the engine: nobody may be admitted on the strength of a running engine.
        gateway.pools.close()
        engine.begin_shutdown()
        server.stop()

    async def work() -> None:
        await engine.run(started=started.set)
        started.set()
        stop()

    async def listen() -> None:
        await started.wait()
        await server.serve(gateway.listener)

    async def follow_shutdown() -> None:
        await engine.shutdown_event.wait()
        stop()

    async def outlive_no_parent() -> None:
        if gateway.settings.lifeline_fd is not None:
            await parent_gone(gateway.settings.lifeline_fd)
            _log.info("the parent has ended; stopping")
            stop()

    async def outlive_no_supervisor() -> None:
        if gateway.grant is not None:
            await gateway.grant.spawner.gone()
            _log.info("the root supervisor has ended; stopping")
            stop()

    async with anyio.create_task_group() as helpers:
        helpers.start_soon(outlive_no_supervisor)
        for helper in (follow_shutdown, outlive_no_parent, gateway.readiness.watch):
            helpers.start_soon(helper)
        helpers.start_soon(gateway.identity.watch)
        helpers.start_soon(_obey, signals, gateway, stop)
        helpers.start_soon(_announce, gateway, started)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work)
            tasks.start_soon(listen)
        helpers.cancel_scope.cancel()


async def _obey(signals: Signals, gateway: Gateway, stop: Callable[[], None]) -> None:
    """Do what signals ask; whoever asks twice for the end does not wait for connections."""
    stopped = False
    while True:
        asked = await signals.next()
        if asked.reload:
            gateway.identity.reload()
        if asked.stop and stopped:
            gateway.server.cut()
        elif asked.stop:
            _log.info("stopping")
            stop()
            stopped = True


async def _announce(gateway: Gateway, started: anyio.Event) -> None:
    """Say where we listen, and tell the parent once a submission would be taken."""
    await started.wait()
    if gateway.engine.shutting_down:
        return
    scheme = "http" if gateway.settings.certificate_file is None else "https"
    _log.info("listening on %s://%s", scheme, gateway.address)
    if gateway.settings.signing_key_file is None:
        _log.info("attestations are off: there is no ROOKHOLD_ATTESTATION_KEY_FILE")
    while gateway.readiness.refusal() is not None:
        if gateway.engine.shutting_down:
            return
        await gateway.readiness.probe()
        await anyio.sleep(_READY_POLL_SECONDS)
    if gateway.settings.ready_fd is not None:
        tell_ready(gateway.settings.ready_fd, gateway.address)


def _warn(settings: Settings) -> None:
    for name in settings.unknown_variables:
        _log.warning("%s is not a setting of this server", name)
    if settings.api_keys.any_public:
        _log.warning(
            "DEVELOPMENT ONLY: the public key rookhold-dev-key is accepted; anybody who can reach "
            "this address can run code here"
        )
    if settings.production and not settings.api_keys.is_default:
        _log.warning(
            "keys of ROOKHOLD_API_KEYS carry every scope and never expire; move to "
            "ROOKHOLD_CREDENTIALS_FILE"
        )
