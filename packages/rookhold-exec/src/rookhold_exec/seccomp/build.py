"""Make the filter's bytes from its policy; for developers and tests only.

The program is laid out by ourselves (`assembly`), because libseccomp's takes twice as long to
install, for every job. libseccomp stays the judge: it makes its own of the same policy, and nothing
is built on which the two disagree (`reference`).

`python -m rookhold_exec.seccomp.build` rewrites the committed program, `--check` compares it.
"""

import argparse
import errno
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pyseccomp  # type: ignore[import-untyped]

from rookhold_exec.seccomp.assembly import Condition, answer, entry, rules, tree
from rookhold_exec.seccomp.reference import disagreement, reference

POLICY: Final = Path(__file__).with_name("policy.toml")
PROGRAM: Final = Path(__file__).with_name("x86_64.bpf")

_AUDIT_ARCH_X86_64: Final = 0xC000003E
_EVERY_BIT: Final = 2**64 - 1


class PolicyError(Exception):
    """The policy contradicts itself or names what libseccomp does not know."""


def load_policy() -> dict[str, Any]:
    """Return the policy as data."""
    return tomllib.loads(POLICY.read_text("utf-8"))


def build(policy: dict[str, Any]) -> bytes:
    """Return the x86-64 program of `policy`."""
    plain = [name for group in policy["allow"].values() for name in group]
    refused = [name for group in policy["refused"].values() for name in group]
    missing = [name for group in policy["pretend_missing"].values() for name in group]
    conditional = {rule["call"] for rule in policy["allow_if"]}
    listed = [*plain, *refused, *missing, *sorted(conditional)]
    if twice := {name for name in listed if listed.count(name) > 1}:
        raise PolicyError(f"listed twice: {sorted(twice)}")
    numbers = {name: pyseccomp.resolve_syscall(pyseccomp.Arch.X86_64, name) for name in listed}
    for name, number in numbers.items():
        if not 0 <= number <= policy["highest"]:
            raise PolicyError(f"no system call of x86-64 up to the highest: {name}")
    no_such_call = pyseccomp.ERRNO(errno.ENOSYS)
    otherwise = pyseccomp.ERRNO(getattr(errno, policy["otherwise"]))
    leaves = dict.fromkeys(range(policy["highest"] + 1), answer(otherwise))
    leaves |= {numbers[name]: answer(pyseccomp.ALLOW) for name in plain}
    leaves |= {numbers[name]: answer(no_such_call) for name in missing}
    for name in conditional:
        alternatives = [
            [_condition(each) for each in rule["where"]]
            for rule in policy["allow_if"]
            if rule["call"] == name
        ]
        leaves[numbers[name]] = rules(alternatives, pyseccomp.ALLOW, otherwise)
    head = entry(_AUDIT_ARCH_X86_64, policy["highest"], no_such_call)
    made = b"".join(head + tree(leaves, policy["highest"]))
    if where := disagreement(made, reference(policy, numbers), policy, numbers):
        raise PolicyError(f"libseccomp decides otherwise on {where}")
    return made


def _condition(where: dict[str, Any]) -> Condition:
    return where["arg"], where.get("mask", _EVERY_BIT), where.get("any", [where.get("is")])


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
