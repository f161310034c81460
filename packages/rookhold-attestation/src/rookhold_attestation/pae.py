"""The bytes that a signature covers."""

from . import profile
from .errors import InvalidProfileFieldError, StatementTooLargeError


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return DSSE's pre-authentication encoding; lengths count UTF-8 bytes, not characters.

    Source: DSSE 1.0.2, protocol.md. The bounds are the profile's, not DSSE's.
    """
    kind = payload_type.encode()
    if len(kind) > profile.PAYLOAD_TYPE_BYTES_MAX:
        raise InvalidProfileFieldError(field="DSSE payloadType")
    if len(payload) > profile.STATEMENT_BYTES_MAX:
        raise StatementTooLargeError(max_bytes=profile.STATEMENT_BYTES_MAX)
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
