"""The listener: accepts up to a limit, watches every connection's deadlines, drains at the end."""

from __future__ import annotations

import asyncio  # noqa: TID251 - drives sockets on the loop
import contextlib
import logging
import socket
from typing import TYPE_CHECKING, Any, Final

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config

from rookhold_server.errors import AddressUnavailableError
from rookhold_server.http.transport.connection import Connection
from rookhold_server.http.transport.limits import TransportLimits

if TYPE_CHECKING:
    import ssl

    from rookhold_server.config.address import Address

_log = logging.getLogger(__name__)
_CUT_SECONDS: Final = 1.0
_ACCEPT_PAUSE: Final = 0.1  # seconds, where the process is out of descriptors


def bind(address: Address, *, backlog: int = TransportLimits().backlog) -> socket.socket:
    """A listening socket; AddressUnavailableError where somebody else has the address."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(backlog)
    except OSError as exc:
        listener.close()
        raise AddressUnavailableError(
            f"the address of ROOKHOLD_ADDR cannot be bound ({exc.strerror})"
        ) from None
    listener.setblocking(False)
    return listener


class Server:
    """Serves one ASGI application on one listener; with `tls`, over that alone."""

    def __init__(
        self,
        app: Any,
        limits: TransportLimits = TransportLimits(),  # noqa: B008 - frozen
        *,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._app = ASGIWrapper(app)
        self._limits = limits
        self._tls = tls
        self._config = _hypercorn_config(limits)
        self._context = WorkerContext(None)
        self._connections: set[Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._cut = asyncio.Event()

    @property
    def connections(self) -> int:
        return len(self._tasks)

    async def serve(self, listener: socket.socket) -> None:
        """Until `stop`: then no more connections, a time to finish, and the cut."""
        loop = asyncio.get_running_loop()
        accepting = loop.create_task(self._accept(listener))
        ticking = loop.create_task(self._tick())
        try:
            await self._stop.wait()
        finally:
            accepting.cancel()
            await asyncio.wait([accepting])
            listener.close()
        await self._drain()
        ticking.cancel()
        await asyncio.wait([ticking])

    def stop(self) -> None:
        """Begin the drain; idempotent."""
        self._stop.set()

    def cut(self) -> None:
        """End a drain that takes too long."""
        self._cut.set()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        slots = asyncio.Semaphore(self._limits.connections)
        while True:
            await slots.acquire()
            try:
                accepted, _ = await loop.sock_accept(listener)
            except OSError as exc:
                slots.release()
                _log.warning("cannot accept a connection", extra={"errno": exc.errno or 0})
                await asyncio.sleep(_ACCEPT_PAUSE)
                continue
            task = loop.create_task(self._serve_one(accepted))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: slots.release())

    async def _serve_one(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        try:
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted)
        except OSError:
            accepted.close()
            return
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        connection = Connection(
            self._app,
            loop,
            self._config,
            self._context,
            {},
            reader,
            writer,
            limits=self._limits,
            tls=self._tls,
        )
        self._connections.add(connection)
        try:
            await connection.run()
        except Exception as exc:  # noqa: BLE001 - one connection's fault must not end the server
            _log.error("a connection failed", exc_info=exc)
        finally:
            self._connections.discard(connection)

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._limits.tick_seconds)
            now = loop.time()
            for connection in tuple(self._connections):
                connection.check(now)

    async def _drain(self) -> None:
        await self._context.terminated.set()
        for connection in tuple(self._connections):
            connection.retire()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.drain_seconds):
                await self._until_empty_or_cut()
        if self._tasks:
            _log.warning("cutting connections", extra={"connections": len(self._tasks)})
            for connection in tuple(self._connections):
                connection.abort()
            # Handlers notice that the peer is gone; one that does not is left to the loop's end.
            await asyncio.wait(tuple(self._tasks), timeout=_CUT_SECONDS)

    async def _until_empty_or_cut(self) -> None:
        cut = asyncio.get_running_loop().create_task(self._wait_for_cut())
        try:
            while self._tasks and not cut.done():
                await asyncio.wait([cut, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            cut.cancel()

    async def _wait_for_cut(self) -> None:
        await self._cut.wait()


def _hypercorn_config(limits: TransportLimits) -> Config:
    config = Config()
    config.errorlog = _log
    config.include_server_header = False
    config.h11_max_incomplete_size = limits.head_bytes
    return config
