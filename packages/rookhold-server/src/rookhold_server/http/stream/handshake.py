"""The opening handshake of a WebSocket (RFC 6455, section 4.2), judged on the request's head."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING, Final

from rookhold_server.refusal import Refusal

if TYPE_CHECKING:
    from rookhold_server.http.call import Call

_SUFFIX: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_VERSION: Final = b"13"
_NONCE_BYTES: Final = 16
_OFFER: Final = ((b"upgrade", b"websocket"), (b"sec-websocket-version", _VERSION))


def check_handshake(call: Call) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers of the answer 101; Refusal `upgrade_required` for any other request.

    No subprotocol and no extension is ever agreed to.
    """
    key = _only(call, b"sec-websocket-key")
    if (
        call.scope["http_version"] != "1.1"
        or call.method != "GET"
        or b"websocket" not in _tokens(call, b"upgrade")
        or b"upgrade" not in _tokens(call, b"connection")
        or _only(call, b"sec-websocket-version") != _VERSION
        or not _is_nonce(key)
        or call.header(b"transfer-encoding")
        or any(value != b"0" for value in call.header(b"content-length"))
    ):
        call.headers.extend(_OFFER)
        raise Refusal("upgrade_required")
    digest = hashlib.sha1(key + _SUFFIX).digest()  # noqa: S324 - the protocol's, and no secret
    return (
        (b"upgrade", b"websocket"),
        (b"connection", b"Upgrade"),
        (b"sec-websocket-accept", base64.b64encode(digest)),
    )


def _only(call: Call, name: bytes) -> bytes:
    values = call.header(name)
    return values[0].strip() if len(values) == 1 else b""


def _tokens(call: Call, name: bytes) -> set[bytes]:
    return {token.strip().lower() for value in call.header(name) for token in value.split(b",")}


def _is_nonce(key: bytes) -> bool:
    try:
        return len(base64.b64decode(key, validate=True)) == _NONCE_BYTES
    except binascii.Error:
        return False
