import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_attestation.canonical import (
    canonical,
    number_text,
    receipt_digest,
    refuse_unsafe_numbers,
)
from rookhold_attestation.errors import JsonEncodingError, NumberOutOfRangeError
from rookhold_attestation.strictjson import Json, parse

SHARED = json.loads((Path(__file__).parents[3] / "tests/vectors/canonical.json").read_text("utf-8"))
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
WRITABLE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=30,
)


@pytest.mark.parametrize("case", SHARED["cases"], ids=lambda case: case["id"])
def test_the_shared_cases_are_written_alike(case: dict[str, str]) -> None:
    value = parse(case["value"].encode(), "d")
    written = canonical(value)
    assert written.decode() == case["canonical"]
    assert hashlib.sha256(written).hexdigest() == case["sha256"]
    refuse_unsafe_numbers(value)


@pytest.mark.parametrize("case", SHARED["writer_refusals"], ids=lambda case: case["id"])
def test_a_reader_spells_what_a_writer_refuses(case: dict[str, str]) -> None:
    value = parse(case["value"].encode(), "d")
    assert canonical(value).decode() == case["reader_canonical"]
    with pytest.raises(NumberOutOfRangeError):
        refuse_unsafe_numbers(value)


@pytest.mark.parametrize("case", SHARED["reader_only"], ids=lambda case: case["id"])
def test_a_reader_spells_what_only_it_can_tell_apart(case: dict[str, str]) -> None:
    assert canonical(parse(case["value"].encode(), "d")).decode() == case["reader_canonical"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.00001, "0.00001"),
        (0.000099999, "0.000099999"),
        (9.999999999999999e-06, "9.999999999999999e-6"),
        (9999999999999998.0, "9999999999999998.0"),
        (1e16, "1e+16"),
        (1.5e16, "1.5e+16"),
        (-1.25e-7, "-1.25e-7"),
        (123456.789, "123456.789"),
        (100.0, "100.0"),
        (2**64, "1.8446744073709552e+19"),
        (-(2**63) - 1, "-9.223372036854776e+18"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (2.2250738585072014e-308, "2.2250738585072014e-308"),
    ],
)
def test_numbers_are_spelt_as_the_profile_says(number: float, text: str) -> None:
    assert number_text(number) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_spelt_float_reads_back_the_same_and_is_as_short_as_repr(number: float) -> None:
    text = number_text(number)
    assert repr(float(text)) == repr(number)
    mantissa = text.partition("e")[0].strip("-").replace(".", "").strip("0")
    assert mantissa == repr(number).partition("e")[0].strip("-").replace(".", "").strip("0")
    assert ("e" in text) == (number != 0 and not 1e-5 <= abs(number) < 1e16)
    assert repr(parse(text.encode(), "d")) == repr(number)


@given(WRITABLE)
def test_what_is_written_is_a_fixed_point(value: Json) -> None:
    written = canonical(value)
    assert canonical(parse(written, "d")) == written
    assert json.loads(written) == value


def test_a_deep_value_is_written_without_recursion() -> None:
    value: list[object] = []
    for _ in range(100_000):
        value = [value]
    assert canonical(value).count(b"[") == 100_001


@pytest.mark.parametrize(
    "value",
    [
        "\ud800",
        {"\udfff": 1},
        {1: 2},
        {"a": 1, 2: 3},
        float("nan"),
        float("inf"),
        10**400,
        b"bytes",
        {1, 2},
        [object()],
    ],
)
def test_what_json_lacks_is_refused(value: object) -> None:
    with pytest.raises(JsonEncodingError):
        canonical(value)


def test_the_published_edge_vector_has_its_digest() -> None:
    # Source: unit test vector of the profile's first implementation.
    receipt = {
        "receipt_sha256": "ignored",
        "z": [0, -1, 1.5, -0.0, 1e30],
        "é": 'line\nquote"slash\\snowman☃',
        "a": {"β": True, "alpha": None},
    }
    expected = "b72615478bc37dd1335636bcfb4c75626560a075e011e6bb70eca96b51ae674c"
    assert receipt_digest(receipt) == expected


def test_only_the_digest_at_the_top_is_left_out() -> None:
    outer = {"receipt_sha256": "x", "a": 1}
    assert receipt_digest(outer) == hashlib.sha256(b'{"a":1}').hexdigest()
    inner = {"a": {"receipt_sha256": "x"}}
    assert receipt_digest(inner) == hashlib.sha256(b'{"a":{"receipt_sha256":"x"}}').hexdigest()


@pytest.mark.parametrize("number", [2**53, -(2**53), 1.0, -0.0, 2**64])
def test_numbers_that_are_never_signed_are_found_at_any_depth(number: float) -> None:
    refuse_unsafe_numbers({"a": [{"b": 2**53 - 1, "c": -(2**53) + 1, "d": True}]})
    with pytest.raises(NumberOutOfRangeError):
        refuse_unsafe_numbers({"a": [{"b": [0, number]}]})
