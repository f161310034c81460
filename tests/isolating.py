"""The backends that confine a job, as the end-to-end tests take them: settings, marks, allowances.

`off` is none of them. What cannot be had on a host is skipped by its marks alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, kw_only=True)
class Isolating:
    """One backend. What its runtime takes of a job's own limits is `runtime_mb`, `runtime_pids`."""

    name: str
    marks: tuple[pytest.MarkDecorator, ...]
    settings: Callable[[], dict[str, str]] = dict  # of the server; asked for when it is needed
    executor: Callable[[], dict[str, Any]] = dict  # the same, as ExecSettings has them
    runtime_mb: int = 0
    runtime_pids: int = 0
    pid_1_is_ours: bool = True  # or else the job's own

    def limits(self, **wanted: int) -> dict[str, int]:
        """Return limits that leave the job itself what is wanted."""
        extra = {"mem_mb": self.runtime_mb, "max_pids": self.runtime_pids}
        return {name: value + extra.get(name, 0) for name, value in wanted.items()}


def _rootfs() -> str:
    from rootfs import test_rootfs

    return str(test_rootfs())


NAMESPACES_DEV = Isolating(name="namespaces-dev", marks=(pytest.mark.linux_ns,))
NAMESPACES = Isolating(
    name="namespaces",
    marks=(
        pytest.mark.linux_ns,
        pytest.mark.rootfs,
        pytest.mark.groups("v2:memory", "v2:pids"),
    ),
    settings=lambda: {"ROOKHOLD_ROOTFS": _rootfs()},
    executor=lambda: {"rootfs": _rootfs()},
)
BACKENDS = (NAMESPACES_DEV, NAMESPACES)
NAMED = {each.name: each for each in BACKENDS}
ISOLATING = [pytest.param(each.name, marks=each.marks) for each in BACKENDS]
