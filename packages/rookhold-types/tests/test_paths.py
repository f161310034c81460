"""Paths: only below their root, only by parts that lead nowhere else."""

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_types import check_input_path, check_output_path

GOOD_TAILS = [
    "a",
    "a.txt",
    "nested/deep/er/file",
    "with space/and  two",
    "ünï/名前.txt",
    "...",
    "..a",
    "a..",
    ".hidden",
    "-rf",
    "input",
    "output/x",
    "~",
    "$HOME",
    "a:b",
    "\x80",
]
BAD_TAILS = [
    "",
    ".",
    "..",
    "../a",
    "a/..",
    "a/../b",
    "a/.",
    "./a",
    "/a",
    "a/",
    "a//b",
    "/",
    "a\\b",
    "\\",
    "a\x00b",
    "a\nb",
    "a\tb",
    "\x1f",
    "\x7f",
    chr(0xD800),
]
BAD_WHOLE = [
    "",
    "/",
    ".",
    "..",
    "a",
    "input",
    "output",
    "/input/a",
    "/output/a",
    "./input/a",
    "../input/a",
    "Input/a",
    "OUTPUT/a",
    "inputs/a",
    "outputs/a",
    " input/a",
    "input /a",
    "input\\a",
    "//input/a",
]


@pytest.mark.parametrize("tail", GOOD_TAILS)
def test_an_ordinary_name_below_its_root_is_fine(tail: str) -> None:
    assert check_input_path(f"input/{tail}")
    assert check_output_path(f"output/{tail}")


@pytest.mark.parametrize("tail", BAD_TAILS)
def test_a_part_that_could_lead_elsewhere_is_refused(tail: str) -> None:
    assert not check_input_path(f"input/{tail}")
    assert not check_output_path(f"output/{tail}")


@pytest.mark.parametrize("path", BAD_WHOLE)
def test_a_path_outside_its_root_is_refused(path: str) -> None:
    assert not check_input_path(path)
    assert not check_output_path(path)


def test_the_roots_are_not_interchangeable() -> None:
    assert not check_input_path("output/a")
    assert not check_output_path("input/a")


@pytest.mark.parametrize(("character", "size"), [("a", 1), ("é", 2), ("名", 3), ("😀", 4)])
def test_the_length_is_counted_in_utf8_bytes(character: str, size: int) -> None:
    room = 240 - len("input/")
    longest = "input/" + character * (room // size)
    longest += "a" * (240 - len(longest.encode()))
    assert check_input_path(longest)
    assert not check_input_path(longest + "a")


@given(
    st.lists(st.sampled_from(["input", "output", "a", ".", "..", "", " ", "\\", "\n"]), max_size=6)
)
def test_an_accepted_path_is_normal_and_stays_below_its_root(parts: list[str]) -> None:
    path = "/".join(parts)
    if check_input_path(path):
        assert posixpath.normpath(path) == path
        assert path.startswith("input/")
        assert not check_output_path(path)


@given(st.text(max_size=100))
def test_both_roots_have_the_same_rules(tail: str) -> None:
    assert len(tail.encode("utf-8", "surrogatepass")) > 230 or (
        check_input_path("input/" + tail) == check_output_path("output/" + tail)
    )


@given(st.text())
def test_a_path_that_does_not_begin_at_a_root_is_refused(text: str) -> None:
    if not text.startswith(("input/", "output/")):
        assert not check_input_path(text)
        assert not check_output_path(text)
