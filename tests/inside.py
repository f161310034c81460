"""A whole gateway in this process, opened as at every start, for tests that must reach into it.

Its listener, store, executor and engine are the real ones. What only a process has is not there:
signals, an exit status.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
from anyio.from_thread import start_blocking_portal
from gateway import eventually

from rookhold_server.config.settings import read_settings
from rookhold_server.startup import Gateway, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from anyio.from_thread import BlockingPortal

KEY = "a-key-of-acme-for-tests"
SECONDS = 60


class Inside:
    def __init__(self, portal: BlockingPortal, gateway: Gateway) -> None:
        self.portal = portal
        self.gateway = gateway
        self.address = f"{gateway.address.host}:{gateway.address.port}"

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call on the loop of the gateway."""
        return self.portal.call(function, *arguments)


@contextmanager
def inside(home: Path, *, work: bool = True, **settings: str) -> Iterator[Inside]:
    """Serve; without `work` the engine never gets past its start-up recovery."""
    home.mkdir(mode=0o700, exist_ok=True)
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ROOKHOLD_ADDR": "127.0.0.1:0",
        "ROOKHOLD_SANDBOX": "off",
        "ROOKHOLD_STORAGE_FREE_RESERVE_MB": "0",
        "ROOKHOLD_API_KEYS": f"acme:{KEY},other:{KEY}-other",
        **{f"ROOKHOLD_{name}": text for name, text in settings.items()},
    }
    made: list[Gateway] = []
    up = threading.Event()

    async def live() -> None:
        async with opened(read_settings(environ)) as gateway:
            made.append(gateway)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(gateway.server.serve, gateway.listener)
                tasks.start_soon(gateway.readiness.watch)
                if work:
                    tasks.start_soon(lambda: gateway.engine.run(started=up.set))
                else:
                    up.set()

    with start_blocking_portal() as portal:
        living = portal.start_task_soon(live)
        living.add_done_callback(lambda _: up.set())
        assert up.wait(SECONDS)
        if living.done():
            living.result()
        gateway = made[0]
        try:
            assert not work or eventually(SECONDS, lambda: gateway.engine.recovered)
            yield Inside(portal, gateway)
        finally:
            for stop in (gateway.pools.close, gateway.engine.begin_shutdown, gateway.server.stop):
                portal.call(stop)
            portal.call(gateway.server.cut)
            living.result(SECONDS)
