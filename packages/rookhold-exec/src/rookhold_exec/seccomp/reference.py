"""libseccomp's own program of the policy: what every build of ours is held against."""

import errno
import itertools
import struct
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyseccomp  # type: ignore[import-untyped]

_CALL: Final = struct.Struct("<IIQ6Q")  # struct seccomp_data
_INSTRUCTION: Final = struct.Struct("=HBBI")  # struct sock_filter

_WORD: Final = 2**64 - 1
X86_64, I386, X32_BIT = 0xC000003E, 0x40000003, 0x40000000
_BEYOND: Final = 64  # numbers above the highest that are compared too


def reference(policy: Mapping[str, Any], numbers: Mapping[str, int]) -> bytes:
    """Return the program that libseccomp makes of the policy; on x86-64 only."""
    missing = pyseccomp.ERRNO(errno.ENOSYS)
    made = pyseccomp.SyscallFilter(pyseccomp.ERRNO(getattr(errno, policy["otherwise"])))
    made.set_attr(pyseccomp.Attr.ACT_BADARCH, missing)
    for name in itertools.chain.from_iterable(policy["allow"].values()):
        made.add_rule_exactly(pyseccomp.ALLOW, numbers[name])
    for name in itertools.chain.from_iterable(policy["pretend_missing"].values()):
        made.add_rule_exactly(missing, numbers[name])
    for rule in policy["allow_if"]:
        for each in _combinations(rule["where"]):
            made.add_rule_exactly(pyseccomp.ALLOW, numbers[rule["call"]], *each)
    with tempfile.TemporaryFile() as file:
        made.export_bpf(file)
        file.seek(0)
        return file.read()


def _combinations(where: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    choices = [
        [
            pyseccomp.Arg(each["arg"], pyseccomp.MASKED_EQ, each.get("mask", _WORD), value)
            for value in _wanted(each)
        ]
        for each in where
    ]
    yield from itertools.product(*choices)


def _wanted(condition: Mapping[str, Any]) -> list[int]:
    return list(condition.get("any", [condition.get("is")]))


def decide(program: bytes, number: int, *args: int, machine: int = X86_64) -> int:
    """Run a program on one call, made up; return its action."""
    padded = (*args, *(0,) * (6 - len(args)))
    data = _CALL.pack(number, machine, 0, *(each & _WORD for each in padded))
    at = value = 0
    while True:
        code, if_true, if_false, operand = _INSTRUCTION.unpack_from(program, at * 8)
        at += 1
        match code:
            case 0x20:  # load a word
                [value] = struct.unpack_from("<I", data, operand)
            case 0x54:  # and
                value &= operand
            case 0x05:  # jump
                at += operand
            case 0x15:
                at += if_true if value == operand else if_false
            case 0x25:
                at += if_true if value > operand else if_false
            case 0x35:
                at += if_true if value >= operand else if_false
            case 0x06:  # return
                return int(operand)
            case _:
                raise ValueError(f"an instruction that neither makes: {code:#x}")


def disagreement(
    ours: bytes, theirs: bytes, policy: Mapping[str, Any], numbers: Mapping[str, int]
) -> str:
    """Name the first call on which two programs differ, or return nothing.

    Compared are every number up to the policy's highest, on each entry of the kernel, and for calls
    with conditions every wanted value of each argument, also with any one of its bits flipped.
    Above the highest ours says that there is no such call, which libseccomp cannot express.
    """
    for number in range(policy["highest"] + 1):
        for args in ((), (_WORD,) * 6):
            if decide(ours, number, *args) != decide(theirs, number, *args):
                return f"call {number}"
    for number in range(policy["highest"] + _BEYOND):
        if decide(ours, number, machine=I386) != decide(theirs, number, machine=I386):
            return f"call {number} of another machine"
        if decide(ours, number | X32_BIT) != decide(theirs, number | X32_BIT):
            return f"call {number} of x32"
    for rule in policy["allow_if"]:
        number = numbers[rule["call"]]
        for near in _around(rule["where"]):
            if decide(ours, number, *near) != decide(theirs, number, *near):
                return f"{rule['call']}{near}"
    return ""


def _around(where: list[dict[str, Any]]) -> Iterator[tuple[int, ...]]:
    """Yield arguments that meet a rule, with all else clear or set, and those one bit beside."""
    for values in itertools.product(*map(_wanted, where)):
        for rest in (0, _WORD):
            args = [rest] * 6
            for each, value in zip(where, values, strict=True):
                mask = each.get("mask", _WORD)
                args[each["arg"]] = (value & mask) | (rest & ~mask)
            yield tuple(args)
            for each in where:
                for bit in range(64):
                    other = list(args)
                    other[each["arg"]] ^= 1 << bit
                    yield tuple(other)
