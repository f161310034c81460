"""Server-sent events: one frame per event, a comment now and then, the end after the last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from rookhold_server.http.stream.watch import pieces
from rookhold_server.http.transport import ClientGoneError

if TYPE_CHECKING:
    from rookhold_server.http.call import Call
    from rookhold_server.http.stream.feed import Feed
    from rookhold_server.http.stream.watch import Piece, Watch
    from rookhold_store.rows import EventText

CONTENT_TYPE: Final = b"text/event-stream"
PING_SECONDS: Final = 15.0
_PING: Final = b": ping\n\n"


async def serve_events(call: Call, feed: Feed, watch: Watch) -> None:
    """Send until the job's last event, or until `watch` ends it; then the body ends in order."""
    await call.begin(200, content_type=CONTENT_TYPE)
    sending = anyio.Lock()

    async def send(piece: Piece) -> None:
        async with sending:  # a comment must not come in the middle of a frame
            for part in piece:
                await watch.timed(call.send_chunk(part))

    async def ping() -> None:
        while True:
            await anyio.sleep(PING_SECONDS)
            await send((_PING,))

    async def tell() -> None:
        async for events in feed.batches():
            for piece in pieces(_frame(event) for event in events):
                await send(piece)

    async def leave() -> None:
        await call.until_gone()
        raise ClientGoneError

    await watch.run(tell, ping, leave)
    if not watch.gone:
        await watch.timed(call.end())


def _frame(event: EventText) -> tuple[bytes, ...]:
    head = b"id: %d\nevent: %b\ndata: " % (event.seq, _name(event.kind))
    return (head, *event.parts, b"\n\n")


def _name(kind: str) -> bytes:
    """A line of the format; a stored kind is any text, and only ours have no line ends for sure."""
    return " ".join(kind.splitlines()).encode()
