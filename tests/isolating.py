"""The backends that confine a job, as the end-to-end tests take them: settings, marks, allowances.

`off` is none of them. What cannot be had on a host is skipped by its marks alone.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(frozen=True, kw_only=True)
class Isolating:
    """One backend. What its runtime takes of a job's own limits is `runtime_mb`, `runtime_pids`."""

    name: str
    marks: tuple[pytest.MarkDecorator, ...]
    settings: Callable[[], dict[str, str]] = dict  # of the server; asked for when it is needed
    executor: Callable[[], dict[str, Any]] = dict  # the same, as ExecSettings has them
    runtime_mb: int = 0
    runtime_pids: int = 0
    own_kernel: bool = False  # the job's: it counts, shows and refuses by itself

    def limits(self, **wanted: int) -> dict[str, int]:
        """Return limits that leave the job itself what is wanted."""
        extra = {"mem_mb": self.runtime_mb, "max_pids": self.runtime_pids}
        return {name: value + extra.get(name, 0) for name, value in wanted.items()}


@contextmanager
def private_place() -> Iterator[Path]:
    """Yield a new directory to which nobody but root has the way: a jobs root must be in one.

    Temporary directories are everybody's.
    """
    place = Path(
        tempfile.mkdtemp(prefix="rookhold-tests-", dir="/run" if not os.geteuid() else None)
    )
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _rootfs() -> str:
    from rootfs import test_rootfs

    return str(test_rootfs())


def _runsc() -> str:
    found = shutil.which("runsc", path="/usr/local/bin:/usr/bin:/bin")
    return "" if found is None else str(Path(found).resolve())  # no link leads to it


@cache
def _pinned() -> str:
    from rookhold_exec.rootfs import digest, manifest

    return digest(manifest(_rootfs()))


def _surveyed() -> dict[str, Any]:
    """Return what is known of host and root once: to read the whole root takes its time."""
    from reviewed import VERSION_2, surveyed

    (kind,) = VERSION_2.values
    return surveyed(kind)


NAMESPACES_DEV = Isolating(name="namespaces-dev", marks=(pytest.mark.linux_ns,))
NAMESPACES = Isolating(
    name="namespaces",
    marks=(
        pytest.mark.linux_ns,
        pytest.mark.rootfs,
        pytest.mark.groups("v2:memory", "v2:pids"),
    ),
    settings=lambda: {"ROOKHOLD_ROOTFS": _rootfs()},
    executor=lambda: {"rootfs": _rootfs(), "surveyed": _surveyed()},
)
GVISOR = Isolating(
    name="gvisor",
    marks=(pytest.mark.runsc, pytest.mark.rootfs, pytest.mark.groups("memory", "pids")),
    settings=lambda: {
        "ROOKHOLD_ROOTFS": _rootfs(),
        "ROOKHOLD_GVISOR_RUNSC": _runsc(),
        "ROOKHOLD_GVISOR_ROOTFS_SHA256": _pinned(),
        "ROOKHOLD_GVISOR_PLATFORM": "ptrace",
    },
    executor=lambda: {
        "rootfs": _rootfs(),
        "rootfs_sha256": _pinned(),
        "runsc": _runsc(),
        "runsc_platform": "ptrace",  # what every kernel offers
    },
    runtime_mb=64,
    own_kernel=True,
)
BACKENDS = (NAMESPACES_DEV, NAMESPACES, GVISOR)
NAMED = {each.name: each for each in BACKENDS}
ISOLATING = [pytest.param(each.name, marks=each.marks) for each in BACKENDS]
