import base64
import json

import pytest

from rookhold_attestation import dssebase64
from rookhold_attestation.envelope import read_envelope, write_envelope
from rookhold_attestation.errors import (
    AttestationError,
    EnvelopeTooLargeError,
    InvalidJsonError,
    JsonEncodingError,
)

SIG = base64.b64encode(bytes(64)).decode()


def text(**changes: object) -> bytes:
    members = {"payloadType": "t", "payload": "", "signatures": [{"keyid": "k", "sig": SIG}]}
    return json.dumps({**members, **changes}).encode()


def code_of_shape(data: bytes) -> str:
    with pytest.raises(AttestationError) as caught:
        read_envelope(data).check_shape()
    return caught.value.code


def test_an_envelope_is_written_compact_in_the_fixed_order_and_sorted_by_key_id() -> None:
    written = write_envelope("t", b"body", [("b", b"\x02" * 64), ("a", b"\x01" * 64)])
    one, two = (dssebase64.encode(bytes([n]) * 64) for n in (1, 2))
    assert written.decode() == (
        '{"payloadType":"t","payload":"Ym9keQ==","signatures":'
        f'[{{"keyid":"a","sig":"{one}"}},{{"keyid":"b","sig":"{two}"}}]}}'
    )
    assert read_envelope(written).decoded_payload() == b"body"


def test_unknown_members_and_a_missing_key_id_are_ignored() -> None:
    envelope = read_envelope(text(extra={"a": [1.5]}, signatures=[{"sig": SIG, "cert": "x"}]))
    envelope.check_shape()
    assert envelope.signatures[0].key_id == ""


@pytest.mark.parametrize(
    "data",
    [
        b"[]",
        b'"x"',
        b"{}",
        text(payloadType=1),
        text(payload=None),
        text(signatures={}),
        text(signatures=[[]]),
        text(signatures=[{"keyid": None, "sig": SIG}]),
        text(signatures=[{"keyid": "k"}]),
        text(signatures=[{"sig": 5}]),
        text(signatures=[{"sig": SIG}] * 33),
        b'{"payloadType":"t","payload":"","signatures":[{"sig":"","sig":""}]}',
        b'{"payloadType":"t","payload":"","signatures":[],"x":{"a":1,"a":1}}',
        b'{"payloadType":"t","payloadType":"t","payload":"","signatures":[]}',
    ],
)
def test_wrong_shapes_and_repeated_members_are_refused_as_json(data: bytes) -> None:
    with pytest.raises(InvalidJsonError) as caught:
        read_envelope(data)
    assert caught.value.detail["document"] == "DSSE envelope"


def test_a_repeated_member_is_reported_before_a_wrong_type() -> None:
    with pytest.raises(InvalidJsonError) as caught:
        read_envelope(b'{"payloadType":1,"payload":"","payload":""}')
    assert "repeated" in str(caught.value.detail["reason"])


def test_32_signatures_are_read() -> None:
    assert len(read_envelope(text(signatures=[{"sig": SIG}] * 32)).signatures) == 32


def test_shape_rules_have_their_own_codes() -> None:
    assert code_of_shape(text(signatures=[])) == "no_signatures"
    assert code_of_shape(text(payloadType="é" * 128)) == "invalid_profile_field"
    assert code_of_shape(text(signatures=[{"sig": SIG}, {"sig": ""}])) == "invalid_signature_length"


@pytest.mark.parametrize(
    ("hint", "usable"),
    [("k", "k"), ("é" * 128, "é" * 128), ("é" * 129, ""), ("a\x00", ""), ("a\x9f", ""), ("", "")],
)
def test_an_unusable_hint_counts_as_empty(hint: str, usable: str) -> None:
    envelope = read_envelope(text(signatures=[{"keyid": hint, "sig": SIG}]))
    assert envelope.signatures[0].usable_hint == usable


def test_an_envelope_over_two_mebibytes_is_not_written() -> None:
    with pytest.raises(EnvelopeTooLargeError):
        write_envelope("t", bytes(1_572_864), [])


def test_a_key_id_that_is_not_text_is_not_written() -> None:
    with pytest.raises(JsonEncodingError):
        write_envelope("t", b"", [("\ud800", bytes(64))])


def test_the_text_form_hides_payload_and_signatures() -> None:
    envelope = read_envelope(text(payload="c2VjcmV0"))
    assert "c2VjcmV0" not in repr(envelope)
    assert SIG not in repr(envelope) + repr(envelope.signatures)
