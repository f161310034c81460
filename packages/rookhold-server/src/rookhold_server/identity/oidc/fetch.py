"""One HTTPS request for a provider's keys: bounded in time and size, and never sent elsewhere."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio
import h11

from rookhold_server.identity.oidc.jwks import BYTES_MAX, JwksError

if TYPE_CHECKING:
    from anyio.abc import ByteStream

CONNECT_SECONDS: Final = 3.0  # name, connection and TLS
TOTAL_SECONDS: Final = 5.0
_HEAD_BYTES_MAX: Final = 16 * 1024
_PIECE: Final = 64 * 1024


def trust() -> ssl.SSLContext:
    """Return what this system trusts; names are checked, TLS 1.2 is the oldest."""
    return ssl.create_default_context()


class JwksSource:
    """Where the keys are. Each `read` is one request on a connection of its own."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or 443
        self._context = context
        self._request = h11.Request(
            method="GET",
            target=parts.path or "/",
            headers=[
                ("host", parts.netloc),
                ("accept", "application/jwk-set+json, application/json"),
                ("accept-encoding", "identity"),
                ("user-agent", "rookhold"),
                ("connection", "close"),
            ],
        )

    async def read(self) -> bytes:
        """Return the document, or raise JwksError."""
        try:
            with anyio.fail_after(TOTAL_SECONDS):
                stream = await self._connect()
                async with stream:
                    return await self._ask(stream)
        except TimeoutError:
            raise JwksError(f"no whole answer within {TOTAL_SECONDS:.0f} s") from None
        except ssl.SSLError:
            raise JwksError("the certificate or the TLS connection is not to be trusted") from None
        except (OSError, UnicodeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise JwksError("the connection failed") from None
        except (anyio.EndOfStream, h11.RemoteProtocolError):
            raise JwksError("the answer is no whole HTTP answer") from None

    async def _connect(self) -> ByteStream:
        try:
            with anyio.fail_after(CONNECT_SECONDS):
                return await anyio.connect_tcp(
                    self._host,
                    self._port,
                    ssl_context=self._context,
                    tls_standard_compatible=False,
                )
        except TimeoutError:
            raise JwksError(f"no connection within {CONNECT_SECONDS:.0f} s") from None

    async def _ask(self, stream: ByteStream) -> bytes:
        http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES_MAX)
        await stream.send(
            (http.send(self._request) or b"") + (http.send(h11.EndOfMessage()) or b"")
        )
        pieces: list[bytes] = []
        size = 0
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await _receive(stream))
            elif isinstance(event, h11.Response):
                _check(event)
            elif isinstance(event, h11.Data):
                pieces.append(event.data)
                size += len(event.data)
                if size > BYTES_MAX:
                    raise JwksError("the document is larger than 1 MiB")
            elif isinstance(event, h11.EndOfMessage):
                return b"".join(pieces)
            elif not isinstance(event, h11.InformationalResponse):
                raise JwksError("the answer is no whole HTTP answer")


async def _receive(stream: ByteStream) -> bytes:
    try:
        return await stream.receive(_PIECE)
    except anyio.EndOfStream:
        return b""  # h11 knows whether this is an end or a cut


def _check(response: h11.Response) -> None:
    """Take a plain 200 and nothing else: a redirect would choose another source of keys."""
    if response.status_code != 200:
        raise JwksError(f"the answer has status {response.status_code}")
    for name, value in response.headers:
        if name == b"content-encoding" and value.lower() != b"identity":
            raise JwksError("the answer is encoded in a way that was not asked for")
