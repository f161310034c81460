"""Strictness against points that a textbook implementation of the curve constructs."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl import bindings
from nacl.exceptions import CryptoError

from rookhold_attestation import ed25519
from rookhold_attestation.ed25519 import GROUP_ORDER as L

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int]
IDENTITY: Point = (0, 1)


def add(a: Point, b: Point) -> Point:
    (x1, y1), (x2, y2) = a, b
    k = D * x1 * x2 * y1 * y2 % P
    x = (x1 * y2 + x2 * y1) * pow(1 + k, -1, P) % P
    y = (y1 * y2 + x1 * x2) * pow(1 - k, -1, P) % P
    return x, y


def times(n: int, point: Point) -> Point:
    total = IDENTITY
    while n:
        if n & 1:
            total = add(total, point)
        point = add(point, point)
        n >>= 1
    return total


def x_of(y: int) -> int | None:
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    return x if x * x % P == square else None


def pack(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def unpack(data: bytes) -> Point:
    number = int.from_bytes(data, "little")
    y, odd = number & (2**255 - 1), number >> 255
    x = x_of(y)
    assert x is not None
    return (x if x & 1 == odd else P - x, y)


def find_order_eight() -> Point:
    y = 2
    while True:
        if (x := x_of(y)) is not None:
            point = times(L, (x, y))
            if times(4, point) != IDENTITY:
                return point
        y += 1


BASE = unpack((4 * pow(5, -1, P) % P).to_bytes(32, "little"))
TORSION = [times(n, find_order_eight()) for n in range(8)]
SEED = bytes(range(32))
PUBLIC = ed25519.public_of_seed(SEED)
SECRET_SCALAR = int.from_bytes(hashlib.sha512(SEED).digest()[:32], "little") & (2**254 - 8) | 2**254
SMALL_ORDER = {
    (y | sign << 255).to_bytes(32, "little")
    for _, y0 in TORSION
    for y in (y0, y0 + P)
    if y < 2**255
    for sign in (0, 1)
}


def challenge(point: bytes, public: bytes, message: bytes) -> int:
    return int.from_bytes(hashlib.sha512(point + public + message).digest(), "little") % L


def sodium_accepts(public: bytes, signature: bytes, message: bytes) -> bool:
    try:
        bindings.crypto_sign_open(signature + message, public)
    except CryptoError:
        return False
    return True


@pytest.fixture
def lenient_sodium(monkeypatch: pytest.MonkeyPatch) -> None:
    """A libsodium that accepts every signature, so that only our own checks can refuse."""

    def accept(signed: bytes, _public: bytes) -> bytes:
        return signed[64:]

    monkeypatch.setattr(bindings, "crypto_sign_open", accept)


def test_the_textbook_curve_agrees_with_the_library() -> None:
    assert pack(times(SECRET_SCALAR, BASE)) == PUBLIC
    assert times(L, BASE) == IDENTITY
    assert len({pack(point) for point in TORSION}) == 8


# Source: RFC 8032, section 7.1, tests 1 to 3.
@pytest.mark.parametrize(
    ("seed", "public", "message", "signature"),
    [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
        ),
    ],
)
def test_the_standard_vectors_sign_and_verify(
    seed: str, public: str, message: str, signature: str
) -> None:
    raw = [bytes.fromhex(text) for text in (seed, public, message, signature)]
    assert ed25519.public_of_seed(raw[0]) == raw[1]
    assert ed25519.sign(raw[0], raw[2]) == raw[3]
    assert ed25519.verifies(raw[1], raw[3], raw[2])


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=64), st.integers(0, 511))
def test_an_honest_signature_verifies_and_no_flipped_bit_of_it_does(
    seed: bytes, message: bytes, bit: int
) -> None:
    public, signature = ed25519.public_of_seed(seed), ed25519.sign(seed, message)
    assert ed25519.verifies(public, signature, message)
    flipped = (int.from_bytes(signature, "little") ^ 1 << bit).to_bytes(64, "little")
    assert not ed25519.verifies(public, flipped, message)
    assert not ed25519.verifies(public, signature, message + b"\x00")


@pytest.mark.parametrize("encoded", sorted(SMALL_ORDER), ids=bytes.hex)
def test_a_small_order_point_is_neither_a_key_nor_part_of_a_signature(encoded: bytes) -> None:
    assert not ed25519.is_strong_point(encoded)
    # S = 0 makes the equation hold for every message under such a key, were it not refused.
    assert not ed25519.verifies(encoded, encoded + bytes(32), b"any message")


@pytest.mark.usefixtures("lenient_sodium")
@pytest.mark.parametrize("encoded", sorted(SMALL_ORDER), ids=bytes.hex)
def test_a_small_order_point_is_refused_by_ourselves(encoded: bytes) -> None:
    honest = ed25519.sign(SEED, b"m")
    assert ed25519.verifies(PUBLIC, honest, b"m")
    assert not ed25519.verifies(PUBLIC, encoded + honest[32:], b"m")
    assert not ed25519.verifies(encoded, honest, b"m")


@pytest.mark.parametrize("index", range(1, 8))
def test_a_key_with_a_small_order_component_is_refused_where_libsodium_accepts_it(
    index: int,
) -> None:
    mixed = pack(add(unpack(PUBLIC), TORSION[index]))
    nonce = 7**50 % L
    point = pack(times(nonce, BASE))
    # A challenge divisible by 8 cancels the component, so that both equations hold.
    message = next(m for m in map(str, range(999)) if challenge(point, mixed, m.encode()) % 8 == 0)
    hashed = challenge(point, mixed, message.encode())
    signature = point + ((nonce + hashed * SECRET_SCALAR) % L).to_bytes(32, "little")
    assert sodium_accepts(mixed, signature, message.encode())
    assert not ed25519.verifies(mixed, signature, message.encode())
    assert not ed25519.is_strong_point(mixed)


@pytest.mark.usefixtures("lenient_sodium")
@pytest.mark.parametrize("index", range(1, 8))
def test_a_signature_that_only_the_cofactored_equation_accepts_is_refused(index: int) -> None:
    nonce = 7**50 % L
    point = pack(add(times(nonce, BASE), TORSION[index]))
    message = b"m"
    scalar = (nonce + challenge(point, PUBLIC, message) * SECRET_SCALAR) % L
    signature = point + scalar.to_bytes(32, "little")
    assert not ed25519.verifies(PUBLIC, signature, message)


def test_the_same_construction_without_the_component_verifies() -> None:
    nonce = 7**50 % L
    point = pack(times(nonce, BASE))
    scalar = (nonce + challenge(point, PUBLIC, b"m") * SECRET_SCALAR) % L
    assert ed25519.verifies(PUBLIC, point + scalar.to_bytes(32, "little"), b"m")


@pytest.mark.usefixtures("lenient_sodium")
def test_the_second_encoding_of_a_point_is_refused() -> None:
    # y from 0 to 18 can also be written as y + p; those on the curve are tried with both signs.
    twice = [y for y in range(19) if x_of(y) is not None]
    assert len(twice) > 2
    for y in twice:
        for sign in (0, 1):
            encoded = (y + P | sign << 255).to_bytes(32, "little")
            assert not ed25519.is_strong_point(encoded)
            assert not ed25519.verifies(PUBLIC, encoded + bytes(32), b"m")


@pytest.mark.usefixtures("lenient_sodium")
def test_a_scalar_at_or_above_the_group_order_is_refused() -> None:
    signature = ed25519.sign(SEED, b"m")
    scalar = int.from_bytes(signature[32:], "little")
    raised = signature[:32] + (scalar + L).to_bytes(32, "little")
    assert not ed25519.verifies(PUBLIC, raised, b"m")
    assert not ed25519.verifies(PUBLIC, signature[:32] + L.to_bytes(32, "little"), b"m")


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_a_key_of_another_length_is_refused(length: int) -> None:
    assert not ed25519.is_strong_point(bytes(length))


def test_a_y_that_is_on_no_curve_point_is_refused() -> None:
    y = next(y for y in range(2, 100) if x_of(y) is None)
    assert not ed25519.is_strong_point(y.to_bytes(32, "little"))
