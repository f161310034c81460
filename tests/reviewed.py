"""The namespace backend in a reviewed root, for tests: as it is, and without the need of version 2.

The second makes its groups wherever it may, so that all but the version 2 groups is tested on a
host that has its controllers in version 1.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from rootfs import test_rootfs

from rookhold_exec import probe
from rookhold_exec.backends.namespaces import Namespaces
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness

if TYPE_CHECKING:
    from rookhold_exec.probe import Fact, HostReport, Place


class WithAnyGroups(Namespaces):
    """The backend with whatever groups there are, or none."""

    def _lacking(self, report: HostReport) -> list[Fact]:
        return [fact for fact in super()._lacking(report) if fact.control not in probe.UNIFIED]

    def _places(self, report: HostReport) -> list[Place]:
        return list(report.places)


ANY_GROUPS = pytest.param(
    WithAnyGroups,
    marks=[
        pytest.mark.linux_ns,
        pytest.mark.root,
        pytest.mark.rootfs,
        pytest.mark.groups("v1:memory", "v1:pids", "v1:cpuacct"),
    ],
    id="groups-of-version-1",
)
VERSION_2 = pytest.param(
    Namespaces,
    marks=[
        pytest.mark.linux_ns,
        pytest.mark.root,
        pytest.mark.rootfs,
        pytest.mark.groups("v2:memory", "v2:pids"),
    ],
    id="groups-of-version-2",
)
KINDS = [ANY_GROUPS, VERSION_2]


@cache
def surveyed(kind: type[Namespaces]) -> dict[str, Any]:
    """Return what this host was found to offer; to read the whole root takes seconds."""
    return {"note": "for a test", "found": kind(settings(), "").survey()}


def settings(**more: Any) -> ExecSettings:
    return ExecSettings(workers=4, rootfs=str(test_rootfs()), **more)


def opened(kind: type[Namespaces], **more: Any) -> Harness:
    """Return the backend ready for jobs; with `faults`, for python alone."""
    few = {"node": "none", "bash": "none"} if "faults" in more else {}
    executor = kind(settings(surveyed=surveyed(kind), **few, **more), "for a test")
    harness = Harness(executor)
    harness.do(executor.open())
    return harness
