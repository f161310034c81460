import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_attestation.errors import InvalidProfileFieldError, StatementTooLargeError
from rookhold_attestation.pae import pae

VECTORS = [
    ("text/plain", b"hello", b"DSSEv1 10 text/plain 5 hello"),
    (
        "http://example.com/HelloWorld",
        b"hello world",
        b"DSSEv1 29 http://example.com/HelloWorld 11 hello world",
    ),
    ("", b"", b"DSSEv1 0  0 "),
    ("é", "é".encode(), "DSSEv1 2 é 2 é".encode()),
    ("a", b"\x00\n", b"DSSEv1 1 a 2 \x00\n"),
]
INPUTS = st.tuples(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.binary(max_size=40)
)


@pytest.mark.parametrize(("payload_type", "payload", "expected"), VECTORS)
def test_the_encoding_matches_the_vector(
    payload_type: str, payload: bytes, expected: bytes
) -> None:
    assert pae(payload_type, payload) == expected


@given(INPUTS, INPUTS)
def test_distinct_inputs_never_encode_alike(a: tuple[str, bytes], b: tuple[str, bytes]) -> None:
    assert (pae(*a) == pae(*b)) == (a == b)


def test_a_type_of_256_bytes_is_refused_although_it_has_fewer_characters() -> None:
    pae("a" * 255, b"")
    with pytest.raises(InvalidProfileFieldError) as caught:
        pae("é" * 128, b"")
    assert caught.value.detail == {"field": "DSSE payloadType"}


def test_a_body_over_one_mebibyte_is_refused() -> None:
    pae("t", bytes(1_048_576))
    with pytest.raises(StatementTooLargeError):
        pae("t", bytes(1_048_577))
