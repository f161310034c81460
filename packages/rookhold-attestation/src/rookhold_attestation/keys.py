"""Ed25519 keys, and the one PEM text that each of them has."""

import binascii
import hashlib
import os
from pathlib import Path
from typing import Final

from . import dssebase64, ed25519, keyfiles, profile
from .errors import (
    InvalidBase64Error,
    InvalidKeyEncodingError,
    KeyFileTooLargeError,
    RandomnessUnavailableError,
)

# DER up to the 32 key bytes: PKCS#8 version 0 without a public key, and SubjectPublicKeyInfo.
_PRIVATE_DER: Final = binascii.unhexlify("302e020100300506032b657004220420")
_PUBLIC_DER: Final = binascii.unhexlify("302a300506032b6570032100")


class PublicKey:
    """A trusted or published key; only strong points exist as objects of this class."""

    __slots__ = ("key_id", "raw")

    def __init__(self, raw: bytes) -> None:
        if not ed25519.is_strong_point(raw):
            raise InvalidKeyEncodingError(kind="public", format="Ed25519")
        self.raw = raw
        self.key_id = f"sha256:{hashlib.sha256(raw).hexdigest()}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"PublicKey({self.key_id})"

    @classmethod
    def from_pem(cls, pem: str) -> "PublicKey":
        """Accept only the exact text that `to_pem` returns for the same key."""
        return cls(_Pem("public", "PUBLIC KEY", _PUBLIC_DER).key_bytes(pem))

    def to_pem(self) -> str:
        return _Pem("public", "PUBLIC KEY", _PUBLIC_DER).text(self.raw)

    @classmethod
    def load(cls, path: str | Path) -> "PublicKey":
        """Read a key file; its own and its parents' owners and modes are part of the check."""
        return cls.from_pem(keyfiles.read_key_text(path, "public"))

    def save(self, path: str | Path) -> None:
        """Write a new file with mode 0644; an existing one is never overwritten."""
        keyfiles.write_new_key_file(path, "public", self.to_pem())

    def verifies(self, signature: bytes, message: bytes) -> bool:
        return ed25519.verifies(self.raw, signature, message)


class PrivateKey:
    """A signing key. Its text form is never part of `repr`, of an error or of a pickle."""

    __slots__ = ("_seed", "public_key")

    def __init__(self, seed: bytes) -> None:
        if len(seed) != ed25519.SEED_BYTES:
            raise InvalidKeyEncodingError(kind="private", format="Ed25519")
        self._seed = seed
        self.public_key = PublicKey(ed25519.public_of_seed(seed))

    def __repr__(self) -> str:
        return f"PrivateKey({self.key_id})"

    def __reduce__(self) -> str:
        raise TypeError("a private key is not picklable")

    @property
    def key_id(self) -> str:
        return self.public_key.key_id

    @classmethod
    def generate(cls) -> "PrivateKey":
        try:
            seed = os.urandom(ed25519.SEED_BYTES)
        except (NotImplementedError, OSError) as exc:
            raise RandomnessUnavailableError from exc
        return cls(seed)

    @classmethod
    def from_pem(cls, pem: str) -> "PrivateKey":
        """Accept only the exact text that `to_pem` returns for the same key."""
        return cls(_Pem("private", "PRIVATE KEY", _PRIVATE_DER).key_bytes(pem))

    def to_pem(self) -> str:
        """Return the secret in clear: PKCS#8, unencrypted."""
        return _Pem("private", "PRIVATE KEY", _PRIVATE_DER).text(self._seed)

    @classmethod
    def load(cls, path: str | Path) -> "PrivateKey":
        """Read a key file; its own and its parents' owners and modes are part of the check."""
        return cls.from_pem(keyfiles.read_key_text(path, "private"))

    def save(self, path: str | Path) -> None:
        """Write a new file with mode 0600; an existing one is never overwritten."""
        keyfiles.write_new_key_file(path, "private", self.to_pem())

    def sign(self, message: bytes) -> bytes:
        """Return the 64-byte signature of exactly these bytes; callers pass a `pae` result."""
        return ed25519.sign(self._seed, message)


class _Pem:
    """One strict PEM form: a fixed label, a fixed DER prefix and one base64 line."""

    def __init__(self, kind: keyfiles.Kind, label: str, prefix: bytes) -> None:
        self._kind = kind
        self._begin = f"-----BEGIN {label}-----\n"
        self._end = f"\n-----END {label}-----\n"
        self._prefix = prefix

    def text(self, key: bytes) -> str:
        return f"{self._begin}{dssebase64.encode(self._prefix + key)}{self._end}"

    def key_bytes(self, pem: str) -> bytes:
        if len(pem) > profile.KEY_FILE_BYTES_MAX:
            raise KeyFileTooLargeError(kind=self._kind, max_bytes=profile.KEY_FILE_BYTES_MAX)
        line = pem.removeprefix(self._begin).removesuffix(self._end)
        try:
            der = dssebase64.decode(line, "key")
        except InvalidBase64Error:
            raise self._refusal() from None
        key = der.removeprefix(self._prefix)
        # Writing it again must give the same text: one key, one spelling, nothing before or after.
        if len(key) != ed25519.KEY_BYTES or self.text(key) != pem:
            raise self._refusal()
        return key

    def _refusal(self) -> InvalidKeyEncodingError:
        form = "PKCS#8 PEM" if self._kind == "private" else "SubjectPublicKeyInfo PEM"
        return InvalidKeyEncodingError(kind=self._kind, format=form)
