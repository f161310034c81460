"""Make the filter's bytes from its policy, with libseccomp; for developers and tests only.

`python -m rookhold_exec.seccomp.build` rewrites the committed program, `--check` compares it.
"""

import argparse
import errno
import itertools
import struct
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyseccomp  # type: ignore[import-untyped]

POLICY: Final = Path(__file__).with_name("policy.toml")
PROGRAM: Final = Path(__file__).with_name("x86_64.bpf")

# Of SCMP_FLTATR_CTL_OPTIMIZE: half the time to install, and fewer steps a call.
_BINARY_TREE: Final = 2
_UNKNOWN: Final = -1

# struct sock_filter: code, jump if true, jump if false, operand
_LOAD_WORD, _JUMP_IF_GREATER, _RETURN = 0x20, 0x25, 0x06


class PolicyError(Exception):
    """The policy contradicts itself or names what libseccomp does not know."""


def load_policy() -> dict[str, Any]:
    """Return the policy as data."""
    return tomllib.loads(POLICY.read_text("utf-8"))


def conditions(where: list[dict[str, Any]]) -> Iterator[tuple[tuple[int, int | None, int], ...]]:
    """Yield one rule's conditions as (argument, mask, value) for each combination of values."""
    choices = [
        [(each["arg"], each.get("mask"), value) for value in each.get("any", [each.get("is")])]
        for each in where
    ]
    yield from itertools.product(*choices)


def build(policy: dict[str, Any]) -> bytes:
    """Return the x86-64 program of `policy`."""
    plain = [name for group in policy["allow"].values() for name in group]
    refused = [name for group in policy["refused"].values() for name in group]
    missing = [name for group in policy["pretend_missing"].values() for name in group]
    conditional = [rule["call"] for rule in policy["allow_if"]]
    listed = plain + refused + missing + sorted(set(conditional))
    if twice := {name for name in listed if listed.count(name) > 1}:
        raise PolicyError(f"listed twice: {sorted(twice)}")
    no_such_call = pyseccomp.ERRNO(errno.ENOSYS)
    made = pyseccomp.SyscallFilter(pyseccomp.ERRNO(getattr(errno, policy["otherwise"])))
    if not made.exist_arch(pyseccomp.Arch.X86_64):
        raise PolicyError("this generator runs on x86-64 only")
    made.set_attr(pyseccomp.Attr.ACT_BADARCH, no_such_call)
    made.set_attr(pyseccomp.Attr.CTL_OPTIMIZE, _BINARY_TREE)
    numbers = {name: pyseccomp.resolve_syscall(pyseccomp.Arch.X86_64, name) for name in listed}
    for name, number in numbers.items():
        if not 0 <= number <= policy["highest"]:
            raise PolicyError(f"no system call of x86-64 up to the highest: {name}")
    for name in plain:
        made.add_rule_exactly(pyseccomp.ALLOW, numbers[name])
    for name in missing:
        made.add_rule_exactly(no_such_call, numbers[name])
    for rule in policy["allow_if"]:
        for each in conditions(rule["where"]):
            made.add_rule_exactly(pyseccomp.ALLOW, numbers[rule["call"]], *map(_compare, each))
    with tempfile.TemporaryFile() as file:
        made.export_bpf(file)
        file.seek(0)
        return _newer_calls_are_missing(policy["highest"]) + file.read()


def _compare(condition: tuple[int, int | None, int]) -> Any:
    arg, mask, value = condition
    if mask is None:
        return pyseccomp.Arg(arg, pyseccomp.EQ, value)
    return pyseccomp.Arg(arg, pyseccomp.MASKED_EQ, mask, value)


def _newer_calls_are_missing(highest: int) -> bytes:
    """Return the head: ENOSYS above `highest` for any entry; x32 numbers lie above it."""
    instruction = struct.Struct("=HBBI")
    return (
        instruction.pack(_LOAD_WORD, 0, 0, 0)
        + instruction.pack(_JUMP_IF_GREATER, 0, 1, highest)
        + instruction.pack(_RETURN, 0, 0, pyseccomp.ERRNO(errno.ENOSYS))
    )


def main(argv: list[str] | None = None) -> int:
    """Write the program, or with `--check` say whether the committed one is up to date."""
    parser = argparse.ArgumentParser(prog="python -m rookhold_exec.seccomp.build")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if it differs")
    check = parser.parse_args(argv).check
    made = build(load_policy())
    if not check:
        PROGRAM.write_bytes(made)
    elif not PROGRAM.exists() or PROGRAM.read_bytes() != made:
        sys.stderr.write("the committed filter is not what the policy makes\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
