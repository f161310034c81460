"""The namespace backend in a reviewed root, for tests: as it is, and without the need of version 2.

The second makes its groups wherever it may, so that all but the version 2 groups is tested on a
host that has its controllers in version 1.
"""

from __future__ import annotations

from pathlib import Path

from rookhold_exec import probe
from rookhold_exec.backends.namespaces import Namespaces
from rookhold_exec.probe import Fact, HostReport, Place
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness


class WithAnyGroups(Namespaces):
    """The backend with whatever groups there are, or none."""

    def _lacking(self, report: HostReport) -> list[Fact]:
        return [fact for fact in super()._lacking(report) if fact.control not in probe.UNIFIED]

    def _places(self, report: HostReport) -> list[Place]:
        return list(report.places)


def opened(kind: type[Namespaces], rootfs: Path, **settings: object) -> Harness:
    executor = kind(ExecSettings(workers=4, rootfs=str(rootfs), **settings), "for a test")
    harness = Harness(executor)
    harness.do(executor.open())
    return harness
