"""Namespaces of the host's own system, without a root file system of its own: `namespaces-dev`.

It really confines a job, needs no set-up and no root, and still claims no isolation class, because
it is not a reviewed boundary. What it does is said in the controls of each receipt.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

from rookhold_exec import interpreters, probe, seccomp, subids
from rookhold_exec.backends.launched import LaunchedExecutor
from rookhold_types.isolation import Backend
from rookhold_types.limits import LimitEnforcement


class NamespacesDev(LaunchedExecutor):
    """Every job in namespaces, a root and a tmpfs of its own."""

    backend: ClassVar[Backend] = Backend.NAMESPACES_DEV

    def survey(self) -> dict[str, Any]:
        told, _ = self.slots()
        return {"places": list(probe.places()), "subids": told}

    def slots(self) -> tuple[list[int], str]:
        """Return the range for the slots' uids without root, as the launcher takes it.

        It is empty for root, and where there is none; then the second value says why.
        """
        if os.geteuid() == 0:
            return [], ""
        found, why = subids.find(self._settings.workers)
        return ([], why) if found is None else (found.told(), "")

    def hello(self) -> dict[str, Any]:
        return {
            "mode": "namespaces",
            "seccomp": seccomp.program() if self._settings.seccomp else None,
            "places": self._surveyed["places"],
            "uid_base": self._settings.uid_base,
            "subids": self._surveyed["subids"],
            "faults": sorted(self._settings.faults),
        }

    def locate(self, name: str) -> str | None:
        return interpreters.find_visible(name)

    def enforcement(self, controls: tuple[str, ...]) -> LimitEnforcement:
        own_count = "user-namespace" in controls and "rlimits" in controls
        return LimitEnforcement(
            wall=True,
            cpu="cgroup-cpu" in controls,
            mem="cgroup-memory" in controls,
            pids="cgroup-pids" in controls or own_count,
            file="rlimits" in controls,
        )
