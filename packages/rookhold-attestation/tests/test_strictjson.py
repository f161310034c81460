import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_attestation.errors import InvalidJsonError
from rookhold_attestation.strictjson import Json, parse

SHARED = json.loads((Path(__file__).parents[3] / "tests/vectors/canonical.json").read_text("utf-8"))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=5)
    ),
    max_leaves=30,
)
LITERALS = ["true", "false", "null", "nul", "NaN", "Infinity", "//", "'a'"]
NUMBERS = ["0", "-", "1", ".5", "e3", "01", "-0", "1e999", "123456789012345678901234567890"]
STRINGS = ['"a"', '"b"', '"\\u00e9"', '"\\ud800"']
PIECES = st.sampled_from([*'{}[],:" \n\t\\\x00\ufeffé', *STRINGS, *NUMBERS, *LITERALS])


def refusal(data: bytes) -> InvalidJsonError:
    with pytest.raises(InvalidJsonError) as caught:
        parse(data, "test document")
    return caught.value


def same(left: Json, right: object) -> bool:
    """Compare with types: 1, 1.0 and True are three values, and so are 0.0 and -0.0."""
    return repr(left) == repr(right)


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_what_a_json_writer_writes_is_read_back(
    value: Json, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert same(parse(text.encode(), "d"), value)


def reference(text: str) -> object:
    """The standard reader, made as strict as it can be made."""

    def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
        if len({name for name, _ in pairs}) != len(pairs):
            raise ValueError("a name twice")
        return dict(pairs)

    def number(token: str) -> float:
        if math.isinf(float(token)):
            raise ValueError("too large")
        return float(token)

    def integer(token: str) -> int | float:
        fits = token != "-0" and -(2**63) <= int(token) < 2**64
        return int(token) if fits else number(token)

    def constant(token: str) -> object:
        raise ValueError(token)

    value = json.loads(
        text,
        object_pairs_hook=members,
        parse_float=number,
        parse_int=integer,
        parse_constant=constant,
    )
    json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair fails here
    return value


@given(st.lists(PIECES, max_size=12).map("".join))
def test_the_verdict_is_that_of_the_standard_reader_made_strict(text: str) -> None:
    try:
        expected = reference(text)
    except ValueError:
        refusal(text.encode())
    else:
        assert same(parse(text.encode(), "d"), expected)


@given(VALUES, st.data())
def test_a_changed_byte_is_judged_as_the_standard_reader_made_strict_judges_it(
    value: Json, data: st.DataObject
) -> None:
    text = json.dumps(value)
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.characters(codec="ascii") | st.just("")) + text[at + 1 :]
    try:
        expected = reference(changed)
    except ValueError:
        refusal(changed.encode())
    else:
        assert same(parse(changed.encode(), "d"), expected)


@pytest.mark.parametrize("case", SHARED["parse_refusals"], ids=lambda case: case["id"])
def test_the_shared_refusals_are_refused(case: dict[str, str]) -> None:
    refusal(case["value"].encode())


@pytest.mark.parametrize(
    "data",
    [
        b'"\xff"',
        b'"\xed\xa0\x80"',  # a surrogate written in UTF-8
        b"\xef\xbb\xbf{}",
        "[1]".encode("utf-16"),
        b'"\xc0\x80"',
        b"[1]\x00",
        b"[1]\x0b",
        b"\xc2\xa0[1]",
        b'{"a" 1}',
        b'{"a"',
        b'{"a":',
        b"{,}",
        b'{"a":1 "b":2}',
        b"[1 2]",
        b"[,1]",
        b"[1}",
        b'{"a":1]',
        b'"\\u00g0"',
        b'"\\u+123"',
        b'"\\u 123"',
        b'"\\',
        b"-",
        b"1_0",
        "\u0661".encode(),  # a digit, but not an ASCII one
        b"truefalse",
        b"9" * 400,
    ],
)
def test_malformed_documents_are_refused(data: bytes) -> None:
    refusal(data)


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [
        (b"", 1, 1),
        (b"{}x", 1, 3),
        (b'{"a":1,\n "a":2}', 2, 2),
        (b'[\n1,\n  "\xc3\xa9", nul]', 3, 8),
        (b'["\xc3\xa9", \xff]', 1, 7),
        (b"[1e999]", 1, 2),
    ],
)
def test_a_refusal_names_document_line_and_column(data: bytes, line: int, column: int) -> None:
    error = refusal(data)
    assert error.code == "invalid_json"
    assert error.detail["document"] == "test document"
    assert (error.detail["line"], error.detail["column"]) == (line, column)


def test_a_refusal_quotes_nothing_of_the_document() -> None:
    secret = "hunter2"
    for text in [f'{{"{secret}":1,"{secret}":2}}', f'"{secret}', f"{secret}", f'["{secret}" 1]']:
        error = refusal(text.encode())
        assert secret not in f"{error} {error.detail} {error!r}"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_nesting_of_127_is_read_and_of_128_refused(opening: str, closing: str) -> None:
    parse((opening * 127 + "1" + closing * 127).encode(), "d")
    refusal((opening * 128 + "1" + closing * 128).encode())


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_document_of_nothing_but_openings_cannot_exhaust_the_stack(opening: str) -> None:
    assert refusal((opening * 200_000).encode()).detail["line"] == 1


def test_siblings_do_not_count_as_nesting() -> None:
    assert parse(b"[" + b"[]," * 500 + b"[]]", "d") == [[]] * 501


@pytest.mark.parametrize(
    ("token", "value"),
    [
        ("0", 0),
        ("-1", -1),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", float(2**64)),
        ("-9223372036854775808", -(2**63)),
        ("-9223372036854775809", -float(2**63)),
        ("-0", -0.0),
        ("1.0", 1.0),
        ("1E2", 100.0),
        ("1e-999", 0.0),
        ("0" + "." + "1" * 5000, 1 / 9),
    ],
)
def test_integers_within_64_bits_stay_integers_and_the_rest_are_floats(
    token: str, value: float
) -> None:
    assert same(parse(token.encode(), "d"), value)
