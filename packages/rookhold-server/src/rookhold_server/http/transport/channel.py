"""How the bytes of a connection reach its socket: as they are, or through TLS.

TLS is done here, over two buffers in memory, and not by the loop's own TLS transport: that one has
a second write buffer, so that neither "the kernel has it" nor a deadline for a stuck reader could
be told, and it cannot end one direction alone.
"""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio  # noqa: TID251 - the types of the loop's streams

HTTP1: Final = "http/1.1"
HTTP2: Final = "h2"
_READ_BYTES: Final = 1 << 16
_HANDSHAKE_RECORD: Final = 0x16


class NotTlsError(ConnectionError):
    """The first byte of a peer is not the first of a TLS connection."""


class Plain:
    """Bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.written = 0  # bytes handed to the socket's transport

    async def open(self) -> str:
        """Return the protocol to speak."""
        return HTTP1

    async def read(self) -> bytes:
        """Return what came next, b"" at the end."""
        return await self._reader.read(_READ_BYTES)

    def put(self, data: bytes) -> None:
        """Hand over without waiting; for what is small, or followed by `drain`."""
        self._writer.write(data)
        self.written += len(data)

    async def drain(self) -> None:
        """Return when the kernel has everything."""
        await self._writer.drain()

    def end(self) -> None:
        """End our direction; the peer's goes on."""
        self._writer.write_eof()


class Secure(Plain):
    """The same through TLS. `open` makes the handshake; its deadline is that of a first head."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        context: ssl.SSLContext,
    ) -> None:
        super().__init__(reader, writer)
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._ended = False

    async def open(self) -> str:
        """Raise NotTlsError, or another OSError where the handshake fails."""
        first = await self._reader.read(_READ_BYTES)
        if first and first[0] != _HANDSHAKE_RECORD:
            raise NotTlsError
        self._take(first)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._more()
            except ssl.SSLError:
                await self._forward()  # the alert that says why
                raise
        await self._forward()
        return self._tls.selected_alpn_protocol() or HTTP1

    async def read(self) -> bytes:
        while True:
            try:
                return self._tls.read(_READ_BYTES)
            except ssl.SSLWantReadError:
                if self._ended:
                    return b""
                await self._more()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""  # a connection that was cut says no more than one that was closed
            except ssl.SSLError:
                await self._forward()
                raise

    def put(self, data: bytes) -> None:
        self._tls.write(data)
        super().put(self._outgoing.read())

    def end(self) -> None:
        with contextlib.suppress(ssl.SSLError):  # the peer's part is still to come
            self._tls.unwrap()
        super().put(self._outgoing.read())
        super().end()

    async def _more(self) -> None:
        """Send first: what TLS itself answers must not pile up for a peer that never reads it."""
        await self._forward()
        self._take(await self._reader.read(_READ_BYTES))

    async def _forward(self) -> None:
        if data := self._outgoing.read():
            super().put(data)
            await self.drain()

    def _take(self, data: bytes) -> None:
        if data:
            self._incoming.write(data)
        else:
            self._ended = True
            self._incoming.write_eof()
