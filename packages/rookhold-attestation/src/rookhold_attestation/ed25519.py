"""Strict Ed25519: the only module that touches libsodium.

Which equation is checked: releases of libsodium differ. Some demand R = S*B - h*A exactly (the
cofactorless equation; the library inside PyNaCl 1.6.2 does, as do other v1 verifiers), some accept
a difference of small order (the cofactored one). The two disagree only where A or R has a
component of small order. This module therefore admits A and R only if they are canonically
encoded points of the prime-order subgroup other than the identity, and S only if it is below the
group order. Under these conditions both equations accept the same signatures, so the verdict does
not depend on the libsodium at hand. Every honestly made key and signature satisfies them.
"""

from typing import Final

from nacl import bindings
from nacl.exceptions import CryptoError

SEED_BYTES: Final = 32
KEY_BYTES: Final = 32
GROUP_ORDER: Final = 2**252 + 27742317777372353535851937790883648493


def public_of_seed(seed: bytes) -> bytes:
    return bindings.crypto_sign_seed_keypair(seed)[0]


def sign(seed: bytes, message: bytes) -> bytes:
    """Return the 64-byte signature; deterministic, so a retry gives the same bytes."""
    secret = bindings.crypto_sign_seed_keypair(seed)[1]
    return bindings.crypto_sign(message, secret)[: bindings.crypto_sign_BYTES]


def is_strong_point(encoded: bytes) -> bool:
    """Whether these bytes are the one encoding of a point of prime order.

    Refused: wrong length, y at or above the field prime, no point of the curve, small order (the
    identity included), and a point with a small-order component.
    """
    if len(encoded) != KEY_BYTES:
        return False
    return bool(bindings.crypto_core_ed25519_is_valid_point(encoded))


def verifies(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether this 64-byte signature of `message` is valid under the key, strictly."""
    point, scalar = signature[:KEY_BYTES], signature[KEY_BYTES:]
    if int.from_bytes(scalar, "little") >= GROUP_ORDER:
        return False
    # Both points are tested at every call: the guarantee above must not depend on who made the key.
    if not is_strong_point(public) or not is_strong_point(point):
        return False
    try:
        bindings.crypto_sign_open(signature + message, public)
    except CryptoError:
        return False
    return True
