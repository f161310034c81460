"""Bare hypercorn as a broadcaster: an application that sends the same text to every WebSocket.

It stores nothing and follows nothing: when as many are connected as were announced, each is sent
all messages, one `send` for each.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - as bare as it can be
import sys
from typing import Any

from hypercorn.asyncio import serve
from hypercorn.config import Config


class Broadcast:
    """`/{readers}/{messages}/{size}`: the first that come are one audience, then the next."""

    def __init__(self) -> None:
        self._waiting = 0
        self._all_here = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        readers, messages, size = map(int, scope["path"].strip("/").split("/"))
        await receive()
        await send({"type": "websocket.accept"})
        self._waiting += 1
        if self._waiting == readers:
            self._waiting = 0
            self._all_here.set()
            self._all_here = asyncio.Event()
        else:
            await self._all_here.wait()
        text = "x" * size
        for _ in range(messages):
            await send({"type": "websocket.send", "text": text})
        await send({"type": "websocket.close", "code": 1000})


async def _live(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


async def main(listener: int) -> None:
    config = Config()
    config.bind = [f"fd://{listener}"]
    config.errorlog = None
    await serve(Broadcast(), config)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
