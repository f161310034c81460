"""A stream over a WebSocket: one text frame per event; the peer may ask whether we are there."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from rookhold_server.http.stream.watch import pieces
from rookhold_server.http.transport import ClientGoneError
from rookhold_store import StorageUnavailableError

if TYPE_CHECKING:
    from wsproto.events import Event

    from rookhold_server.http.stream.feed import Feed
    from rookhold_server.http.stream.watch import Piece, Watch
    from rookhold_server.http.transport import Tunnel

MESSAGE_BYTES_MAX: Final = 1024
CLOSE_SECONDS: Final = 0.25
# A frame may be six bytes, and costs us far more than its sender. Nobody has this much to say.
HEARD_AT_ONCE: Final = 2 * MESSAGE_BYTES_MAX
HEARD_PER_SECOND: Final = 4096
_REVOKED: Final = "the credential was revoked"
_TOO_SLOW: Final = "too slow; come again with after=<the last seq that you have>"


class Socket:
    """Our end of one WebSocket whose handshake is done."""

    def __init__(self, tunnel: Tunnel, watch: Watch) -> None:
        self._tunnel = tunnel
        self._watch = watch
        self._frames = Connection(ConnectionType.SERVER)
        self._sending = anyio.Lock()
        self._message = ""
        self._size = 0
        self._heard_bytes = 0
        self._torn = False  # what was sent last may have been the beginning of a frame
        # None is a close frame without a code: nothing went wrong.
        self._code: CloseReason | None = None

    async def serve(self, feed: Feed) -> None:
        """Tell every event, then close; or close because the peer, or the server, ends it."""

        async def tell() -> None:
            async for events in feed.batches():
                for piece in pieces(_text_frame(*event.parts) for event in events):
                    await self._send(piece)

        try:
            await self._watch.run(tell, self._listen)
        except StorageUnavailableError:
            self._code = CloseReason.TRY_AGAIN_LATER
            await self._close()
            raise
        await self._close()

    async def _listen(self) -> None:
        """Return when the peer has closed, or has said what is not understood."""
        while data := await self._next():
            try:
                self._frames.receive_data(data)
                for event in self._frames.events():
                    if not await self._heard(event):
                        return
            except (RemoteProtocolError, LocalProtocolError):
                self._code = CloseReason.PROTOCOL_ERROR
                return
        raise ClientGoneError

    async def _next(self) -> bytes:
        """A few of the peer's bytes at its turn: the more it said before, the later that is."""
        await anyio.sleep(self._heard_bytes / HEARD_PER_SECOND)
        data = await self._tunnel.receive(HEARD_AT_ONCE)
        self._heard_bytes = len(data)
        return data

    async def _heard(self, event: Event) -> bool:
        """Whether the conversation goes on."""
        if isinstance(event, Ping):
            await self._send((self._frames.send(event.response()),))
        elif isinstance(event, CloseConnection):
            if self._frames.state is ConnectionState.OPEN:  # not the peer's, but what it deserves
                self._code = CloseReason(event.code)
            return False
        elif isinstance(event, BytesMessage):
            self._size += len(event.data)
            return self._fits() and self._refuse()
        elif isinstance(event, TextMessage):
            self._message += event.data
            self._size += len(event.data.encode())
            if not self._fits():
                return False
            if event.message_finished:
                text, self._message, self._size = self._message, "", 0
                if text != "ping":
                    return self._refuse()
                await self._send(_text_frame(b"pong"))
        return True

    def _fits(self) -> bool:
        if self._size > MESSAGE_BYTES_MAX:
            self._code = CloseReason.PROTOCOL_ERROR
        return self._size <= MESSAGE_BYTES_MAX

    def _refuse(self) -> bool:
        self._code = CloseReason.POLICY_VIOLATION
        return False

    async def _send(self, piece: Piece) -> None:
        async with self._sending:  # nothing may come in the middle of a frame
            self._torn = True
            for part in piece:
                await self._watch.timed(self._tunnel.send(part))
            self._torn = False

    async def _close(self) -> None:
        """Send the close frame and wait for the peer's, as far as that is quick."""
        if self._torn:
            return
        self._heard_bytes = 0
        frame = CloseConnection(code=self._code)  # type: ignore[arg-type]  # None: without a code
        if self._watch.withdrawn:
            frame = CloseConnection(code=CloseReason.POLICY_VIOLATION, reason=_REVOKED)
        if self._watch.stuck:
            frame = CloseConnection(code=CloseReason.TRY_AGAIN_LATER, reason=_TOO_SLOW)
        with (
            anyio.move_on_after(CLOSE_SECONDS),
            suppress(ClientGoneError, LocalProtocolError, RemoteProtocolError),
        ):
            await self._tunnel.send(self._frames.send(frame))
            while self._frames.state is not ConnectionState.CLOSED:
                if not (data := await self._next()):
                    return
                self._frames.receive_data(data)
                for _ in self._frames.events():
                    pass  # looked at only for the state


def _text_frame(*payload: bytes) -> tuple[bytes, ...]:
    """One whole, unmasked text frame; `payload` is UTF-8 in parts."""
    size = sum(map(len, payload))
    if size < 126:
        head = b"\x81" + size.to_bytes(1, "big")
    elif size < 1 << 16:
        head = b"\x81\x7e" + size.to_bytes(2, "big")
    else:
        head = b"\x81\x7f" + size.to_bytes(8, "big")
    return (head, *payload)
