"""The DSSE envelope: strict reading, tolerant of what DSSE allows, and compact writing."""

from collections.abc import Iterable
from typing import NamedTuple

from . import dssebase64, profile
from .canonical import quote
from .errors import (
    EnvelopeTooLargeError,
    InvalidProfileFieldError,
    InvalidSignatureLengthError,
    JsonEncodingError,
    NoSignaturesError,
    StatementTooLargeError,
)
from .fields import has_control
from .typed import read


class Signature(NamedTuple):
    """One entry; `key_id` is a hint about which key to try first and never a reason to trust."""

    key_id: str
    sig: str

    def __repr__(self) -> str:
        return f"Signature(key_id={self.key_id!r})"

    @property
    def usable_hint(self) -> str:
        """The hint, or "" if it is oversized or holds control characters."""
        oversized = len(self.key_id.encode()) > profile.KEY_ID_HINT_BYTES_MAX
        return "" if oversized or has_control(self.key_id) else self.key_id

    def decoded(self) -> bytes:
        signature = dssebase64.decode(self.sig, "signature")
        if len(signature) != profile.SIGNATURE_BYTES:
            raise InvalidSignatureLengthError
        return signature


class Envelope(NamedTuple):
    """A decoded envelope; payload and signatures are still base64 text."""

    payload_type: str
    payload: str
    signatures: tuple[Signature, ...]

    def __repr__(self) -> str:
        return f"Envelope(signatures={len(self.signatures)})"

    def check_shape(self) -> None:
        if not self.signatures:
            raise NoSignaturesError
        if len(self.payload_type.encode()) > profile.PAYLOAD_TYPE_BYTES_MAX:
            raise InvalidProfileFieldError(field="DSSE payloadType")
        if any(not signature.sig for signature in self.signatures):
            raise InvalidSignatureLengthError

    def decoded_payload(self) -> bytes:
        payload = dssebase64.decode(self.payload, "payload")
        if len(payload) > profile.STATEMENT_BYTES_MAX:
            raise StatementTooLargeError(max_bytes=profile.STATEMENT_BYTES_MAX)
        return payload

    def decoded_signatures(self) -> list[tuple[str, bytes]]:
        """Decode every entry before any is used: one bad entry fails the whole envelope."""
        return [(entry.usable_hint, entry.decoded()) for entry in self.signatures]


def check_size(data: bytes) -> None:
    if len(data) > profile.ENVELOPE_BYTES_MAX:
        raise EnvelopeTooLargeError(max_bytes=profile.ENVELOPE_BYTES_MAX)


def read_envelope(data: bytes) -> Envelope:
    """Decode envelope JSON; size and shape are checked separately, in the verifier's order."""
    root = read(data, profile.ENVELOPE_DOCUMENT)
    return Envelope(
        payload_type=root.member("payloadType").string(),
        payload=root.member("payload").string(),
        signatures=tuple(
            Signature(
                key_id=entry.optional_text("keyid", absent=""), sig=entry.member("sig").string()
            )
            for entry in root.member("signatures").elements(most=profile.SIGNATURES_MAX)
        ),
    )


def write_envelope(payload_type: str, payload: bytes, signed: Iterable[tuple[str, bytes]]) -> bytes:
    """Write compact JSON with the entries, (key id, 64 bytes) each, sorted by key id."""
    entries = ",".join(
        f'{{"keyid":{quote(key_id)},"sig":{quote(dssebase64.encode(signature))}}}'
        for key_id, signature in sorted(signed)
    )
    text = (
        f'{{"payloadType":{quote(payload_type)},"payload":{quote(dssebase64.encode(payload))},'
        f'"signatures":[{entries}]}}'
    )
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise JsonEncodingError(document=profile.ENVELOPE_DOCUMENT) from None
    check_size(data)
    return data
