"""Whose kernel answers a job, on the backend that gives each job one of its own."""

from __future__ import annotations

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


@on("gvisor")
def test_own_kernel(confined: Jobs) -> None:
    check_kernel(confined)


@on("gvisor")
def test_own_kernel_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="the host's kernel answered"):
        check_kernel(weakened.without("own-kernel"))
