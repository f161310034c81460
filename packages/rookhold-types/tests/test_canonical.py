"""Canonical JSON against the vectors that the attestation wheel reads too."""

import hashlib
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_types import (
    INTEGER_MAX,
    CanonicalError,
    InvalidJsonError,
    IsolationClass,
    Limits,
    canonical,
    canonical_sha256,
    decode_strict,
)

VECTORS = json.loads(
    (Path(__file__).parents[3] / "tests/vectors/canonical.json").read_text("utf-8")
)


def vectors(group: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[group], ids=lambda case: case["id"])


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-INTEGER_MAX, INTEGER_MAX) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def by_hand(value: Any) -> str:
    """The rules of the profile once more, written as plainly as they read."""
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: [ord(c) for c in member[0]])
        return "{" + ",".join(f"{by_hand(k)}:{by_hand(v)}" for k, v in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(by_hand, value)) + "]"
    if isinstance(value, str):
        short = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n"}
        short |= {"\f": "\\f", "\r": "\\r"}
        escaped = (short.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in value)
        return f'"{"".join(escaped)}"'
    return {None: "null", True: "true", False: "false"}[value] if not _number(value) else str(value)


def _number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@vectors("cases")
def test_canonical_text_and_digest_match_the_vector(case: dict[str, str]) -> None:
    value = decode_strict(case["value"].encode(), Any)
    assert canonical(value).decode() == case["canonical"]
    assert canonical_sha256(value) == case["sha256"]


@vectors("cases")
def test_the_canonical_text_of_a_vector_is_its_own_canonical_text(case: dict[str, str]) -> None:
    assert canonical(decode_strict(case["canonical"].encode(), Any)).decode() == case["canonical"]


@vectors("cases")
def test_the_digest_of_a_vector_is_that_of_its_text(case: dict[str, str]) -> None:
    assert hashlib.sha256(case["canonical"].encode()).hexdigest() == case["sha256"]


@vectors("writer_refusals")
def test_a_writer_refuses_the_vector_for_its_reason(case: dict[str, str]) -> None:
    value = json.loads(case["value"])
    with pytest.raises(CanonicalError) as caught:
        canonical(value)
    assert caught.value.detail["reason"] == case["reason"]


@vectors("parse_refusals")
def test_nobody_reads_the_vector(case: dict[str, str]) -> None:
    with pytest.raises(InvalidJsonError):
        decode_strict(case["value"].encode(), Any)


def test_refusals_outnumber_acceptances() -> None:
    refusals = len(VECTORS["writer_refusals"]) + len(VECTORS["parse_refusals"])
    assert refusals > len(VECTORS["cases"]) + len(VECTORS["reader_only"])


def test_vector_ids_are_unique() -> None:
    ids = [case["id"] for group in VECTORS.values() if isinstance(group, list) for case in group]
    assert len(ids) == len(set(ids))


@given(VALUES)
def test_any_value_is_written_as_the_rules_say(value: Any) -> None:
    assert canonical(value).decode() == by_hand(value)


@given(VALUES)
def test_what_is_written_reads_back_equal(value: Any) -> None:
    assert decode_strict(canonical(value), Any) == value


@given(st.dictionaries(TEXTS, st.integers(0, 9), min_size=2), st.randoms(use_true_random=False))
def test_member_order_makes_no_difference(value: dict[str, int], random: Any) -> None:
    members = list(value.items())
    random.shuffle(members)
    assert canonical(dict(members)) == canonical(value)


@given(st.integers(min_value=INTEGER_MAX + 1) | st.integers(max_value=-INTEGER_MAX - 1))
def test_an_integer_outside_53_bits_is_refused(number: int) -> None:
    with pytest.raises(CanonicalError):
        canonical([number])


@given(st.floats())
def test_every_float_is_refused(number: float) -> None:
    with pytest.raises(CanonicalError):
        canonical({"a": number})


@pytest.mark.parametrize(
    "value",
    [
        b"bytes",
        bytearray(b"x"),
        {1, 2},
        frozenset(),
        Decimal(1),
        Limits(),
        object(),
        1j,
        {1: "a"},
        {None: 1},
        {True: 1},
        {("a",): 1},
        {b"a": 1},
        [b"x"],
        {"a": {"b": {2}}},
        {IsolationClass.NONE: 1},
        IsolationClass,
        range(2),
    ],
    ids=repr,
)
def test_what_is_not_json_is_refused(value: object) -> None:
    with pytest.raises(CanonicalError):
        canonical(value)


@pytest.mark.parametrize(
    "text", [chr(0xD800), chr(0xDFFF), "a" + chr(0xD83D), chr(0xDE00) + chr(0xD83D)]
)
def test_a_lone_surrogate_is_refused_as_value_and_as_key(text: str) -> None:
    for value in (text, {text: 1}, [{"a": text}]):
        with pytest.raises(CanonicalError) as caught:
            canonical(value)
        assert caught.value.detail["reason"] == "surrogate"


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop.extend([loop, loop])
    with pytest.raises(CanonicalError) as caught:
        canonical(loop)
    assert caught.value.detail["reason"] == "too_deep"


def test_enum_members_and_tuples_are_written_as_texts_and_arrays() -> None:
    assert canonical({"a": (IsolationClass.NONE, 1)}) == b'{"a":["none",1]}'


def test_a_refusal_does_not_quote_the_value() -> None:
    with pytest.raises(CanonicalError) as caught:
        canonical({"hunter2": 1.5, "other": ["hunter2"]})
    assert "hunter2" not in f"{caught.value} {caught.value.detail}"
