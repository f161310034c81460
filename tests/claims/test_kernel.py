"""Whose kernel answers a job, and what it tells of the host."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from claims.backends import on

if TYPE_CHECKING:
    from claims.jobs import Jobs

ABOUT = """
import json, os
kept = {}
for path in ("/proc/version", "/proc/sys/kernel/random/boot_id"):
    kept[path] = open(path).read() if os.path.exists(path) else None
print(json.dumps({**kept, "uname": [os.uname().release, os.uname().version]}))
"""
# How the host was booted, its disks and what they do, and which of its files are locked.
HIDDEN = ["cmdline", "partitions", "diskstats", "locks"]
READ = """
import json
told = {}
for name in json.loads(input()):
    try:
        told[name] = open("/proc/" + name).read(4096)
    except FileNotFoundError:
        pass
print(json.dumps(told))
"""


def check_kernel(jobs: Jobs) -> None:
    told = jobs.ask(ABOUT)
    own = [told["/proc/version"], told["/proc/sys/kernel/random/boot_id"], *told["uname"]]
    host = [
        Path("/proc/version").read_text(),
        Path("/proc/sys/kernel/random/boot_id").read_text(),
        os.uname().release,
        os.uname().version,
    ]
    assert not {*own} & {*host}, "the host's kernel answered"


def host_s_own(name: str) -> str:
    return Path("/proc", name).read_text()[:4096]


def check_hidden(jobs: Jobs) -> None:
    """Another kernel may tell of the machine that it pretends to be."""
    read = jobs.ask(READ, stdin=json.dumps(HIDDEN))
    if jobs.own_kernel:
        read = {name: text for name, text in read.items() if text == host_s_own(name)}
    told = [name for name, text in read.items() if text]
    assert told == [], "the host was told of"


def test_untold_host(confined: Jobs) -> None:
    check_hidden(confined)


def test_untold_host_sabotaged(weakened: Jobs) -> None:
    # A reviewed root with other mounts than it should have is not taken for one.
    lacking = ["own-kernel"] if weakened.own_kernel else ["masks", "private-rootfs"]
    with pytest.raises(AssertionError, match="the host was told of"):
        check_hidden(weakened.without(*lacking))


@on("gvisor")
def test_own_kernel(confined: Jobs) -> None:
    check_kernel(confined)


@on("gvisor")
def test_own_kernel_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="the host's kernel answered"):
        check_kernel(weakened.without("own-kernel"))
