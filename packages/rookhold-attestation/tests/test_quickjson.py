import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_attestation import canonical, quickjson, strictjson
from rookhold_attestation.errors import InvalidJsonError

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.tuples(inner, inner)
        | st.dictionaries(TEXT, inner, max_size=5)
    ),
    max_leaves=30,
)
WORDS = [
    "true",
    "null",
    "NaN",
    "Infinity",
    "-Infinity",
    "nul",
    '"a"',
    '"a":',
    '"\\u00e9"',
    '"\\ud834"',
]
TOKENS = [*WORDS, '"\\ud834\\udd1e"', "0", "-0", "-", "01", "1.", "1.5", "1e999", "1E5", "9" * 30]
PIECES = st.sampled_from([*'{}[],: \n\t"\\\x00\x0b\ufeffé', *TOKENS])
NESTED = "[" * 127 + "]" * 127


def same(left: object, right: object) -> bool:
    """Compare with types: 1, 1.0 and True are three values, and so are 0.0 and -0.0."""
    return repr(left) == repr(right)


def agrees(text: str) -> bool:
    """Whether the quick reader took `text`; if so, the careful one must have taken it alike."""
    quick = quickjson.read(text)
    if quick is None:
        return False
    assert same(quick[0], strictjson.read_carefully(text, "d"))
    return True


@given(st.lists(PIECES, max_size=12).map("".join))
def test_the_quick_reader_takes_nothing_that_the_careful_one_refuses_or_reads_otherwise(
    text: str,
) -> None:
    agrees(text)


@given(VALUES, st.sampled_from([None, 1]), st.booleans())
def test_the_quick_reader_reads_documents_as_the_careful_one_does(
    value: object, indent: int | None, ascii_only: bool
) -> None:
    agrees(json.dumps(value, indent=indent, ensure_ascii=ascii_only))


@given(VALUES)
def test_the_quick_writer_writes_as_the_careful_one_does(value: object) -> None:
    quick = quickjson.write(value)
    assert quick is None or quick == canonical.write_carefully(value)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":1}',
        '{"a":{"b":0,"b":0}}',
        '"\\ud800"',
        '"\\uDFFF"',
        '"\ud800"',
        "NaN",
        "-Infinity",
        "1e999",
        "-0",
        str(2**64),
        "9" * 5000,
        "1 2",
        "\ufeff1",
        '"\n"',
        f"[{NESTED}]",
        "[" * 100_000,
    ],
)
def test_the_quick_reader_leaves_what_is_not_plain_to_the_careful_one(text: str) -> None:
    assert quickjson.read(text) is None


@pytest.mark.parametrize("text", ['{"a":[1,-1,1.5,"é","\\u00e9",true,null]}', " [ ] ", NESTED])
def test_the_quick_reader_takes_what_is_plain(text: str) -> None:
    assert agrees(text)


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value", [1.0, 2**64, -(2**63) - 1, {1: 2}, {Text("a"): 1}, [Text("a")], {"a": {1}}, b"a"]
)
def test_the_quick_writer_leaves_what_is_not_plain_to_the_careful_one(value: object) -> None:
    assert quickjson.write(value) is None


def test_a_value_too_deep_for_the_quick_writer_is_left_to_the_careful_one() -> None:
    value: object = 1
    for _ in range(5000):
        value = [value]
    assert quickjson.write(value) is None


def test_a_refusal_says_where_although_the_quick_reader_stumbled_first() -> None:
    with pytest.raises(InvalidJsonError) as caught:
        strictjson.parse(b'{"a":1,\n"a":1}', "d")
    assert (caught.value.detail["line"], caught.value.detail["column"]) == (2, 1)
