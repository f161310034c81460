"""Reading a submission's body: declared as JSON, bounded in bytes and in time."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import anyio

from rookhold_server.http.transport import ClientGoneError
from rookhold_server.refusal import Refusal
from rookhold_types.limits import BODY_BYTES_MAX

if TYPE_CHECKING:
    from rookhold_server.http.call import Call

SMALL_BYTES: Final = 64 * 1024
READ_SECONDS: Final = 30.0
_JSON: Final = re.compile(rb"application/(?:[!#$&^_.+a-z0-9-]+\+)?json", re.IGNORECASE)


def declared_length(call: Call) -> int | None:
    """Bytes the head announces: 0 for no body, None for a body of unknown length."""
    if call.header(b"transfer-encoding"):
        return None
    lengths = call.header(b"content-length")
    if lengths:
        return int(lengths[0])
    return 0 if call.scope["http_version"].startswith("1") else None


async def read_json_body(call: Call, *, seconds: float = READ_SECONDS) -> bytes:
    """Refusal `unsupported_media_type`, `request_body_too_large` or `request_body_timeout`."""
    kinds = call.header(b"content-type")
    kind = kinds[0].partition(b";")[0].strip() if len(kinds) == 1 else b""
    if _JSON.fullmatch(kind) is None:
        raise Refusal("unsupported_media_type")
    if (declared_length(call) or 0) > BODY_BYTES_MAX:
        raise Refusal("request_body_too_large")
    pieces: list[bytes] = []
    size = 0
    with anyio.move_on_after(seconds):
        while True:
            message = await call.receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            piece = message.get("body", b"")
            pieces.append(piece)
            size += len(piece)
            if size > BODY_BYTES_MAX:
                raise Refusal("request_body_too_large")
            if not message.get("more_body", False):
                return b"".join(pieces)
    raise Refusal("request_body_timeout")
