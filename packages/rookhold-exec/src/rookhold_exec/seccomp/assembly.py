"""Putting a filter's program together: a binary search over ranges of call numbers.

How long a filter takes to install depends on its length, and on its depth too: the kernel runs it
once for every call number, to learn which need no look at their arguments. In a tree of ranges a
number is found in eight comparisons.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

Code = list[bytes]  # instructions
Condition = tuple[int, int, Sequence[int]]  # argument, mask, the values of which it must be one

_INSTRUCTION = struct.Struct("=HBBI")  # struct sock_filter: code, if true, if false, operand
_LOAD, _AND, _JUMP, _RETURN = 0x20, 0x54, 0x05, 0x06
_IF_EQUAL, _IF_GREATER = 0x15, 0x25
_NEAR = 255  # instructions that a conditional jump can skip
# In struct seccomp_data.
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16
_ALL, _LOW = 2**64 - 1, 2**32 - 1


class TooFarError(Exception):
    """A program whose jumps would not reach."""


def _one(code: int, operand: int, true: int = 0, false: int = 0) -> bytes:
    if not (0 <= true <= _NEAR and 0 <= false <= _NEAR):
        raise TooFarError
    return _INSTRUCTION.pack(code, true, false, operand)


def answer(action: int) -> Code:
    return [_one(_RETURN, action)]


def entry(machine: int, highest: int, missing: int) -> Code:
    """Return the head: `missing` above `highest` and for any entry of the kernel but one.

    Numbers of x32 lie above, and the last thing loaded is the call's number.
    """
    return [
        _one(_LOAD, _NUMBER),
        _one(_IF_GREATER, highest, 0, 1),
        _one(_RETURN, missing),
        _one(_LOAD, _MACHINE),
        _one(_IF_EQUAL, machine, 1, 0),
        _one(_RETURN, missing),
        _one(_LOAD, _NUMBER),
    ]


def rules(alternatives: Sequence[Sequence[Condition]], allow: int, otherwise: int) -> Code:
    """Return the code for one call: `allow` if all conditions of any of its rules hold."""
    code = answer(otherwise)
    for conditions in reversed(alternatives):
        rule = answer(allow)
        for condition in reversed(conditions):
            rule = _condition(condition, len(rule)) + rule
        code = rule + code
    return code


def _condition(condition: Condition, ahead: int) -> Code:
    """Return code that goes on if the condition holds, and else skips `ahead` more instructions."""
    argument, mask, values = condition
    if any(value & ~mask for value in values):
        raise ValueError("a value with bits outside its mask")
    at = _ARGUMENTS + 8 * argument
    tests = sorted({value & _LOW for value in values})
    low: Code = [_one(_LOAD, at)]
    if mask & _LOW != _LOW:
        low.append(_one(_AND, mask & _LOW))
    for left, value in zip(range(len(tests) - 1, -1, -1), tests, strict=True):
        # If it is this one, on behind the others; if it is none, away.
        low.append(_one(_IF_EQUAL, value, left, 0 if left else ahead))
    high_mask = mask >> 32
    if not high_mask:
        return low
    if len(highs := {value >> 32 for value in values}) != 1:
        raise ValueError("values that differ in their upper half")
    high: Code = [_one(_LOAD, at + 4)]
    if high_mask != _LOW:
        high.append(_one(_AND, high_mask))
    high.append(_one(_IF_EQUAL, highs.pop(), 0, len(low) + ahead))
    return high + low


def tree(leaves: Mapping[int, Code], highest: int) -> Code:
    """Return a search for the call's number: `leaves` says what begins at which number.

    Neighbours with the same code are one leaf, and every code is there once, behind the search.
    """
    starts = [min(leaves)]
    for before, after in pairwise(sorted(leaves)):
        if leaves[before] != leaves[after]:
            starts.append(after)
    if starts[0] != 0 or starts[-1] > highest:
        raise ValueError("numbers without code")
    codes = list({b"".join(leaves[start]): leaves[start] for start in starts}.values())
    places, behind = _placed(sorted(codes, key=len), len(starts) - 1)
    return _search([(start, places[b"".join(leaves[start])]) for start in starts], 0) + behind


def _placed(codes: Sequence[Code], at: int) -> tuple[dict[bytes, int], Code]:
    """Lay out codes from `at` on; return where the search goes for each, and all of it.

    As few as can be of the last ones are too far away; jumps that reach them lie before all codes.
    """
    ends = [0, *accumulate(map(len, codes))]
    far = next(
        n for n in range(len(codes)) if at + n + ends[-n - 2] <= _NEAR or n + 1 == len(codes)
    )
    direct = len(codes) - far
    places = {
        b"".join(code): at + far + ends[index] if index < direct else at + index - direct
        for index, code in enumerate(codes)
    }
    jumps = [_one(_JUMP, far + ends[direct + n] - n - 1) for n in range(far)]
    return places, jumps + [each for code in codes for each in code]


def _search(leaves: Sequence[tuple[int, int]], at: int) -> Code:
    """Return the comparisons between some leaves, the first of them at `at`, preorder."""
    if len(leaves) == 1:
        return []
    middle = len(leaves) // 2
    below, above = leaves[:middle], leaves[middle:]
    compared = len(below) - 1  # as many as lie between this one and those for the upper half
    left = below[0][1] - at - 1 if len(below) == 1 else 0
    right = above[0][1] - at - 1 if len(above) == 1 else compared
    return [
        _one(_IF_GREATER, above[0][0] - 1, right, left),
        *_search(below, at + 1),
        *_search(above, at + 1 + compared),
    ]
