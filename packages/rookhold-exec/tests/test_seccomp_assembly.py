"""The pieces of a filter's program: what they refuse to express, and how long a search is."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_exec.seccomp.assembly import TooFarError, answer, rules, tree

LOAD, IF_GREATER, JUMP, RETURN = 0x20, 0x25, 0x05, 0x06
ALL = 2**64 - 1


def find(code: list[bytes], number: int) -> tuple[int, int]:
    """Search for a number; return the answer, and after how many comparisons."""
    at = steps = 0
    while True:
        kind, true, false, operand = struct.unpack("=HBBI", code[at])
        if kind == RETURN:
            return operand, steps
        if kind == JUMP:
            at += 1 + operand
            continue
        assert kind == IF_GREATER
        at += 1 + (true if number > operand else false)
        steps += 1


@given(st.lists(st.integers(0, 3), min_size=1, max_size=200))
def test_each_number_is_found_in_a_few_comparisons(actions: list[int]) -> None:
    leaves = {number: answer(action) for number, action in enumerate(actions)}
    code = tree(leaves, len(actions) - 1)
    for number, action in enumerate(actions):
        found, steps = find(code, number)
        assert found == action
        assert steps <= 8
    assert find(code, len(actions) + 50)[0] == actions[-1]


def test_neighbours_with_one_answer_cost_nothing() -> None:
    assert tree(dict.fromkeys(range(400), answer(7)), 399) == answer(7)


def test_a_search_whose_jumps_would_not_reach_is_refused() -> None:
    leaves: dict[int, list[bytes]] = {number: answer(number % 2) for number in range(700)}
    with pytest.raises(TooFarError):
        tree(leaves, 699)


@pytest.mark.parametrize("length", [1, 60, 100, 127, 128, 250, 400])
def test_codes_however_long_are_found_and_only_those_far_away_by_a_detour(length: int) -> None:
    filler = [struct.pack("=HBBI", JUMP, 0, 0, 0)] * length
    leaves = {number: filler + answer(number) for number in range(20)}
    code = tree(leaves, 19)
    assert {find(code, number)[0] == number for number in range(20)} == {True}
    detours = len(code) - 19 - 20 * (length + 1)
    assert detours <= max(0, 20 - (255 - 20) // (length + 1))


@pytest.mark.parametrize("leaves", [{1: answer(0)}, {0: answer(0), 9: answer(1)}])
def test_numbers_that_are_not_covered_are_refused(leaves: dict[int, Any]) -> None:
    with pytest.raises(ValueError, match="without code"):
        tree(leaves, 8)


def test_conditions_that_cannot_hold_or_be_told_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="outside its mask"):
        rules([[(0, 0xF, [0x10])]], 1, 0)
    with pytest.raises(ValueError, match="upper half"):
        rules([[(0, ALL, [1, 1 << 32])]], 1, 0)
