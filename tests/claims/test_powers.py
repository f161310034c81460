"""What a job may ask of the kernel: no capability, no way to gain one, few system calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from claims.backends import NAMESPACES, on

if TYPE_CHECKING:
    from claims.jobs import Jobs

STATUS = """
import json
lines = open("/proc/self/status").read().splitlines()
print(json.dumps(dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)))
"""
NEW_PRIVILEGES = """
import ctypes
print(ctypes.CDLL(None).prctl(39, 0, 0, 0, 0))  # PR_GET_NO_NEW_PRIVS
"""
CALLS = """
import ctypes, json
libc = ctypes.CDLL(None, use_errno=True)
page = ctypes.create_string_buffer(4096)
refused = {}
for name, number, arguments in json.loads(input()):
    arguments = [ctypes.addressof(page) if each == "page" else each for each in arguments]
    ctypes.set_errno(0)
    done = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    refused[name] = done == -1 and ctypes.get_errno()
print(json.dumps(refused))
"""
EPERM = 1
# Each call is one that an unfiltered kernel answers otherwise, to a process without capabilities.
KINDS = {
    "mounts": [("umount2", 166, ["page", 0x7FFFFFFF]), ("open_tree", 428, [-1, "page", -1])],
    "unsharing": [("unshare", 272, [0]), ("setns", 308, [-1, 0])],
    "tracing": [("ptrace", 101, [0, 0, 0, 0]), ("process_vm_readv", 310, [0, 0, 0, 0, 0, 0])],
    "keys": [("keyctl", 250, [0, -3, 1]), ("add_key", 248, [0, 0, 0, 0, 0])],
    "kernel": [("bpf", 321, [0, 0, 0xFFFFFF]), ("perf_event_open", 298, ["page", 0, -1, -1, -1])],
    "memory": [("shmget", 29, [0, 4096, 0o1600]), ("memfd_secret", 447, [-1])],
}


def check_capabilities(jobs: Jobs) -> None:
    status = jobs.ask(STATUS)
    assert status.keys() >= {"CapInh", "CapPrm", "CapEff", "CapBnd"}
    held = {name: value for name, value in status.items() if name.startswith("Cap")}
    assert set(held.values()) == {"0" * 16}, "a capability is held or can be had"


def check_new_privileges(jobs: Jobs) -> None:
    assert jobs.ask(NEW_PRIVILEGES) == 1, "a program may gain privileges"


def check_calls(jobs: Jobs, kind: str) -> None:
    calls = KINDS[kind]
    answers = jobs.ask(CALLS, stdin=json.dumps(calls))
    assert answers == dict.fromkeys((name for name, _, _ in calls), EPERM), "it was not refused"


def test_no_capabilities(confined: Jobs) -> None:
    check_capabilities(confined)


def test_no_capabilities_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="a capability is held"):
        check_capabilities(weakened.without("capabilities-dropped"))


def test_no_new_privileges(confined: Jobs) -> None:
    check_new_privileges(confined)


@on(*NAMESPACES)  # gVisor knows no process that may gain any
def test_no_new_privileges_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="may gain privileges"):
        check_new_privileges(weakened.without("no-new-privileges"))


@on(*NAMESPACES)
@pytest.mark.parametrize("kind", KINDS)
def test_system_calls_refused(confined: Jobs, kind: str) -> None:
    check_calls(confined, kind)


@on(*NAMESPACES)
@pytest.mark.unfiltered
@pytest.mark.parametrize("kind", KINDS)
def test_system_calls_refused_sabotaged(weakened: Jobs, kind: str) -> None:
    with pytest.raises(AssertionError, match="it was not refused"):
        check_calls(weakened.without("seccomp"), kind)
