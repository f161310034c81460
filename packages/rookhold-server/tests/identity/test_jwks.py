"""Which documents are sets of keys, and which of their keys verify."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from issuer import SigningKey, encoded
from jwt.algorithms import RSAAlgorithm

from rookhold_server.config.oidc import ASYMMETRIC
from rookhold_server.identity.oidc.jwks import JwksError, VerifyingKey, parse_jwks

RSA, EC, ED = SigningKey("r", "RS256"), SigningKey("e", "ES256"), SigningKey("d", "EdDSA")


def document(*keys: Any, **more: Any) -> bytes:
    return json.dumps({"keys": list(keys), **more}).encode()


def test_keys_of_three_families_are_taken() -> None:
    found = parse_jwks(document(RSA.jwk(), EC.jwk(), ED.jwk(), more="members are allowed"))
    assert {kid: key.kty for kid, key in found.items()} == {"r": "RSA", "e": "EC", "d": "OKP"}


@pytest.mark.parametrize(
    ("key", "fits"),
    [
        (RSA.jwk(alg=None), {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
        (RSA.jwk(), {"RS256"}),
        (RSA.jwk(alg="PS256"), {"PS256"}),
        (RSA.jwk(alg="RSA-OAEP"), set[str]()),
        (EC.jwk(alg=None), {"ES256"}),
        (EC.jwk(alg="ES384"), set[str]()),
        (SigningKey("e", "ES384").jwk(alg=None), {"ES384"}),
        (SigningKey("e", "ES512").jwk(alg=None), {"ES512"}),
        (ED.jwk(alg=None), {"EdDSA"}),
        (ED.jwk(alg="ES256"), set[str]()),
    ],
)
def test_a_key_fits_the_algorithms_of_its_family_and_curve(
    key: dict[str, Any], fits: set[str]
) -> None:
    [found] = parse_jwks(document(key)).values()
    assert {name for name in ASYMMETRIC if found.fits(name)} == fits


def small(bits: int) -> dict[str, Any]:
    key = rsa.generate_private_key(public_exponent=65537, key_size=bits).public_key()
    return {"kid": "small", **json.loads(RSAAlgorithm.to_jwk(key))}


SKIPPED: dict[str, Callable[[], Any]] = {
    "use for encryption": lambda: RSA.jwk(use="enc"),
    "use of another type": lambda: RSA.jwk(use=["sig"]),
    "operations without verify": lambda: RSA.jwk(key_ops=["sign"]),
    "operations of another type": lambda: RSA.jwk(key_ops="verify"),
    "no kid": lambda: RSA.jwk(kid=None),
    "a kid that no token may have": lambda: RSA.jwk(kid='a"b'),
    "a kid of another type": lambda: RSA.jwk(kid=1),
    "a shared secret": lambda: {"kid": "o", "kty": "oct", "k": encoded(b"s" * 32)},
    "an unknown type": lambda: RSA.jwk(kty="rsa"),
    "a type of another type": lambda: RSA.jwk(kty=["RSA"]),
    "a missing member": lambda: RSA.jwk(n=None),
    "a member of another type": lambda: RSA.jwk(n=1),
    "a member that is no number": lambda: RSA.jwk(n="!"),
    "an even exponent": lambda: RSA.jwk(e=encoded(b"\x02")),
    "a short modulus": lambda: small(1024),
    "an algorithm of another type": lambda: RSA.jwk(alg=["RS256"]),
    "a point that is on no curve": lambda: EC.jwk(x=encoded(b"\x01" * 32)),
    "another curve": lambda: EC.jwk(crv="secp256k1"),
    "a curve that exchanges keys": lambda: ED.jwk(crv="X25519"),
    "its private half": lambda: EC.jwk(d=encoded(b"\x01" * 32)),
}


@pytest.mark.parametrize("name", SKIPPED)
def test_a_key_is_left_out_for(name: str) -> None:
    assert set(parse_jwks(document(SKIPPED[name](), ED.jwk(kid="good")))) == {"good"}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b"<html>",
        b'{"keys": {}}',
        b'{"keys": [1]}',
        document(),
        document(*(ED.jwk(kid=str(number)) for number in range(65))),
        document(ED.jwk(), RSA.jwk(kid="d")),
        document(ED.jwk(), RSA.jwk(kid="d", use="enc")),
        document(ED.jwk(), extra="x" * 1024 * 1024),
        document(ED.jwk()).replace(b'"keys"', b'"keys": [], "keys"'),
        document(ED.jwk())[:-1],
        b"\xef\xbb\xbf" + document(ED.jwk()),
    ],
)
def test_a_document_is_refused_as_a_whole(data: bytes) -> None:
    with pytest.raises(JwksError) as caught:
        parse_jwks(data)
    assert "html" not in str(caught.value)


def test_64_keys_are_taken() -> None:
    assert len(parse_jwks(document(*(ED.jwk(kid=str(number)) for number in range(64))))) == 64


VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text(), max_size=2)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([RSA.jwk(), EC.jwk(), ED.jwk()]),
    st.dictionaries(
        st.sampled_from(
            ["kty", "kid", "use", "key_ops", "alg", "n", "e", "crv", "x", "y", "d", "k", "x5c"]
        ),
        VALUES | st.binary(max_size=80).map(encoded),
        max_size=4,
    ),
)
def test_no_key_breaks_the_parser(key: dict[str, Any], changes: dict[str, Any]) -> None:
    for found in parse_jwks(document({**key, **changes}, ED.jwk(kid="other"))).values():
        assert isinstance(found, VerifyingKey)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_parser(data: bytes) -> None:
    with pytest.raises(JwksError):
        parse_jwks(data)
