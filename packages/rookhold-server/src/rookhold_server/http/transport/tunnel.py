"""A connection that has left HTTP: bytes in both directions, read no faster than they are taken."""

from __future__ import annotations

import asyncio  # noqa: TID251 - one event between the loop's reader and the handler
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SWITCH: Final = "rookhold.switch"  # the extension of a scope by which a handler leaves HTTP
_HELD_BYTES: Final = 1 << 16  # beyond these the peer's bytes stay in the kernel


class Tunnel:
    """What a handler gets for its answer 101. The peer's end of file is an empty `receive`."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], first: bytes) -> None:
        self._send = send
        self._held = bytearray(first)
        self._ended = False
        self._changed = asyncio.Event()

    async def send(self, data: bytes) -> None:
        """Return when the kernel has all of it; ClientGoneError once the peer has left."""
        await self._send(data)

    async def receive(self, most: int = _HELD_BYTES) -> bytes:
        """What has come next, waited for, and no more than `most` of it; b"" at the end."""
        while not self._held and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._held[:most])
        del self._held[:most]
        self._changed.set()
        return data

    async def feed(self, data: bytes) -> None:
        """Hand over what the peer sent; returns when there is room for more."""
        self._held += data
        self._changed.set()
        while len(self._held) > _HELD_BYTES and not self._ended:
            self._changed.clear()
            await self._changed.wait()

    def end(self) -> None:
        self._ended = True
        self._changed.set()
