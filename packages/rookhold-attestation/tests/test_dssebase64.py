import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_attestation.dssebase64 import decode, encode
from rookhold_attestation.errors import InvalidBase64Error


@given(st.binary(max_size=200))
def test_padded_standard_and_url_safe_text_decode_alike(data: bytes) -> None:
    assert decode(encode(data), "f") == data
    assert decode(base64.urlsafe_b64encode(data).decode(), "f") == data


@given(st.text("AQgwz+/-_= \n", max_size=12))
def test_every_accepted_text_is_the_one_spelling_in_its_alphabet(text: str) -> None:
    try:
        data = decode(text, "f")
    except InvalidBase64Error:
        return
    assert text in (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("YWI", "padding is missing or wrong"),
        ("YQ=", "padding is missing or wrong"),
        ("YQ", "padding is missing or wrong"),
        ("Y===", "padding is missing or wrong"),
        ("====", "padding is missing or wrong"),
        ("YWJj=", "padding is missing or wrong"),
        ("+_+_", "two alphabets in one text"),
        ("YR==", "unused bits are not zero"),
        ("YWJ=", "unused bits are not zero"),
        ("YW Jj", "a character outside the alphabet"),
        ("YWJj\n", "a character outside the alphabet"),
        (" YWJj", "a character outside the alphabet"),
        ("YWJ\u0661", "a character outside the alphabet"),
        ("YQ==YQ==", "a character outside the alphabet"),
    ],
)
def test_other_texts_are_refused_with_their_own_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidBase64Error) as caught:
        decode(text, "payload")
    assert caught.value.detail == {"field": "payload", "reason": reason}
