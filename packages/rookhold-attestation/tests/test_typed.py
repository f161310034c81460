import time

import pytest

from rookhold_attestation.errors import InvalidJsonError
from rookhold_attestation.locate import Path, locate
from rookhold_attestation.typed import read


@pytest.mark.parametrize(
    ("text", "path", "found"),
    [
        (" 1", (), "1"),
        ('{"a": {"b": [10, {"c": "x"}]}}', ("a", "b", 1, "c"), '"x"'),
        ('{"a": {"b": [10, {"c": "x"}]}}', ("a", "b"), "[10"),
        ('{"a": ["}", ",", "]"], "b": 2}', ("b",), "2"),
        ('{"a": {"a": 1}, "\\u0062": 2}', ("b",), "2"),
        ("[[], {}, 3]", (2,), "3"),
        ('[[1, 2], [3, "\\""], null]', (1, 1), '"\\""'),
        ('{"": 1, "0": [true]}', ("0", 0), "true"),
    ],
)
def test_a_value_is_found_by_its_path(text: str, path: Path, found: str) -> None:
    assert text[locate(text, path) :].startswith(found)


def test_a_place_behind_many_deep_values_is_found_about_as_fast_as_behind_flat_ones() -> None:
    def seconds(levels: int) -> float:
        text = '{"a": ' + "[" * levels + "1," * 100_000 + "1" + "]" * levels + ', "b": 2}'
        begun = time.perf_counter()
        assert text[locate(text, ("b",)) :] == "2}"
        return time.perf_counter() - begun

    assert min(seconds(1000) for _ in range(3)) < 5 * min(seconds(2) for _ in range(3))


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{"a": 1,\n "n": "1"}', 2, 7),
        ('{"n": 1.0}', 1, 7),
        ('{"n": -0}', 1, 7),
        ('{"n": true}', 1, 7),
        ('{"n": -1}', 1, 7),
        ('{"n": 11}', 1, 7),
        ('{"n": null}', 1, 7),
        ('\n {"m": 1}', 2, 2),
        ("[]", 1, 1),
    ],
)
def test_a_wrong_type_is_reported_where_it_stands(text: str, line: int, column: int) -> None:
    with pytest.raises(InvalidJsonError) as caught:
        read(text.encode(), "d").member("n").unsigned(10)
    assert (caught.value.detail["line"], caught.value.detail["column"]) == (line, column)


def test_an_array_over_its_bound_is_reported_at_the_first_element_too_many() -> None:
    with pytest.raises(InvalidJsonError) as caught:
        list(read(b"[1, 2, 3]", "d").elements(most=2))
    assert caught.value.detail["column"] == 8


def test_an_absent_member_takes_its_default_and_a_null_one_does_not() -> None:
    assert read(b"{}", "d").optional_text("k", absent="") == ""
    with pytest.raises(InvalidJsonError):
        read(b'{"k":null}', "d").optional_text("k", absent="")
    with pytest.raises(InvalidJsonError):
        read(b"[]", "d").optional_text("k", absent="")


def test_the_text_form_of_a_cursor_shows_no_content() -> None:
    assert "hunter2" not in repr(read(b'"hunter2"', "d"))
