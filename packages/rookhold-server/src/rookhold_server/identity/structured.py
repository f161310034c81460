"""Structured credentials: `rookhold_<key_id>_<secret>`, and what is kept of one."""

from __future__ import annotations

import hmac
import re
import secrets
from typing import Final, NamedTuple

PREFIX: Final = "rookhold_"
KEY_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
PEPPER_BYTES: Final = 32
_SECRET_CHARACTERS_MIN: Final = 32
_SECRET_BYTES: Final = 32  # of those that we make; 43 characters
_NEW_ID_BYTES: Final = 6


class Parts(NamedTuple):
    """The secret is only measured: what is compared is a digest of the whole token."""

    key_id: str
    secret_characters: int


def parts(token: str) -> Parts | None:
    """Take a token apart, or return None if it has not this form.

    A key id has no underscore, so the first one after the prefix ends it.
    """
    if not token.startswith(PREFIX):
        return None
    key_id, underscore, secret = token[len(PREFIX) :].partition("_")
    if not underscore or KEY_ID.fullmatch(key_id) is None or len(secret) < _SECRET_CHARACTERS_MIN:
        return None
    return Parts(key_id, len(secret))


class Pepper:
    """The key of all verifiers. It has no printed form."""

    __slots__ = ("_bytes",)

    def __init__(self, key: bytes) -> None:
        if len(key) != PEPPER_BYTES:
            raise ValueError("a pepper has 32 bytes")
        self._bytes = key

    @classmethod
    def new(cls) -> Pepper:
        return cls(secrets.token_bytes(PEPPER_BYTES))

    def verifier(self, token: str) -> bytes:
        """HMAC-SHA-256 over the whole token."""
        return hmac.digest(self._bytes, token.encode(), "sha256")

    def hex(self) -> str:
        """For the file it is kept in, and for nothing else."""
        return self._bytes.hex()

    def __repr__(self) -> str:
        return "Pepper(...)"

    def __reduce__(self) -> str:
        raise TypeError("a pepper is not to be copied about")


def new_key_id() -> str:
    return secrets.token_hex(_NEW_ID_BYTES)


def new_token(key_id: str) -> str:
    """Make the one copy of a credential that there will be."""
    return f"{PREFIX}{key_id}_{secrets.token_urlsafe(_SECRET_BYTES)}"
