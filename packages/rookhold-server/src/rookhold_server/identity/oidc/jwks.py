"""A provider's published keys: which of them may verify a token here, and with what algorithm."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import InvalidKeyError
from msgspec import Struct

from rookhold_types.errors import InvalidJsonError
from rookhold_types.wire import decode_strict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BYTES_MAX: Final = 1024 * 1024
KEYS_MAX: Final = 64
KID: Final = re.compile(r"[ !#-\[\]-~]{1,128}")
_RSA_BITS: Final = range(2048, 16_385)  # below, it can be broken; above, verifying is a load

# What an algorithm wants of a key: its type, and its curve where there is one to choose.
_WANTED: Final[Mapping[str, tuple[str, frozenset[str]]]] = MappingProxyType(
    {
        **{
            f"{kind}S{bits}": ("RSA", frozenset[str]()) for kind in "RP" for bits in (256, 384, 512)
        },
        "ES256": ("EC", frozenset({"P-256"})),
        "ES384": ("EC", frozenset({"P-384"})),
        "ES512": ("EC", frozenset({"P-521"})),
        "EdDSA": ("OKP", frozenset({"Ed25519", "Ed448"})),
    }
)
_LOADERS: Final[Mapping[str, tuple[Callable[[dict[str, Any]], Any], tuple[str, ...]]]] = (
    MappingProxyType(
        {
            "RSA": (RSAAlgorithm.from_jwk, ("n", "e")),
            "EC": (ECAlgorithm.from_jwk, ("crv", "x", "y")),
            "OKP": (OKPAlgorithm.from_jwk, ("crv", "x")),
        }
    )
)


class JwksError(Exception):
    """The keys cannot be had. Says why in our words, never in those of what was read."""


class VerifyingKey(Struct, frozen=True):
    """A public key, and what its owner says that it is for."""

    kty: str
    crv: str
    alg: str | None
    public: Any

    def fits(self, algorithm: str) -> bool:
        kty, curves = _WANTED[algorithm]
        return (
            self.kty == kty and (not curves or self.crv in curves) and self.alg in {None, algorithm}
        )


def parse_jwks(data: bytes) -> dict[str, VerifyingKey]:
    """Return the keys by `kid`; those that are not for verifying, or not for us, are left out.

    Raises JwksError for a document that is none: there a key may mean anything.
    """
    if len(data) > BYTES_MAX:
        raise JwksError("the document is larger than 1 MiB")
    try:
        document = decode_strict(data, dict[str, Any])
    except InvalidJsonError:
        raise JwksError("the document is no strict JSON object") from None
    listed = document.get("keys")
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise JwksError("the document has no list of keys")
    if not 1 <= len(listed) <= KEYS_MAX:
        raise JwksError(f"the document must hold 1 to {KEYS_MAX} keys")
    named = [item for item in listed if isinstance(item.get("kid"), str)]
    if len({item["kid"] for item in named}) != len(named):
        raise JwksError("two keys have the same kid")
    loaded = {item["kid"]: _load(item) for item in named if KID.fullmatch(item["kid"])}
    return {kid: key for kid, key in loaded.items() if key is not None}


def _load(jwk: dict[str, Any]) -> VerifyingKey | None:
    if not _is_for_verifying(jwk) or (loader := _loader(jwk)) is None:
        return None
    load, members = loader
    kty, crv, alg = jwk["kty"], jwk.get("crv", ""), jwk.get("alg")
    if not all(isinstance(jwk.get(name), str) for name in members):
        return None
    if not (alg is None or isinstance(alg, str)) or not isinstance(crv, str):
        return None
    try:
        public = load({"kty": kty, **{name: jwk[name] for name in members}})
    except (InvalidKeyError, UnsupportedAlgorithm, ValueError, OverflowError):
        return None
    if isinstance(public, RSAPublicKey) and public.key_size not in _RSA_BITS:
        return None
    if isinstance(public, EllipticCurvePublicKey) and crv not in {"P-256", "P-384", "P-521"}:
        return None
    return VerifyingKey(kty, crv, alg, public)


def _loader(jwk: dict[str, Any]) -> tuple[Callable[[dict[str, Any]], Any], tuple[str, ...]] | None:
    """None also for a key that is published with its private half: anybody may sign with it."""
    kty = jwk.get("kty")
    return _LOADERS.get(kty) if isinstance(kty, str) and "d" not in jwk else None


def _is_for_verifying(jwk: dict[str, Any]) -> bool:
    operations = jwk.get("key_ops", ["verify"])
    return (
        jwk.get("use", "sig") == "sig" and isinstance(operations, list) and "verify" in operations
    )
