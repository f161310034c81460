"""Namespaces in a root file system that was reviewed, under cgroup v2 limits.

The launcher and the supervisors are those of `namespaces-dev`. What is added is that every control
is promised: the backend does not open where one of them was not seen on a probe, and a job on which
one was not seen is not said to have been in a boundary of any class.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec.structs import replace

from rookhold_exec import probe
from rookhold_exec.backends.namespaces_dev import NamespacesDev
from rookhold_exec.errors import ExecutorUnavailableError, UnsupportedPlatformError
from rookhold_types.isolation import BACKEND_FACTS, Backend, Control, IsolationClass

if TYPE_CHECKING:
    from rookhold_exec.executor import Posture, Provenance, SandboxPlan
    from rookhold_exec.rootfs import Rootfs

PROMISED: Final = frozenset(
    each.value for each in Control if each is not Control.APPLICATION_KERNEL
)


class Namespaces(NamespacesDev):
    """Every job in namespaces, the reviewed root file system, and version 2 groups of its own."""

    backend: ClassVar[Backend] = Backend.NAMESPACES

    def survey(self) -> dict[str, Any]:
        """Look at host and root file system. Raises one error that names all that is missing."""
        check_platform(self.backend)
        report = probe.host()
        missing = [f"{fact.control} ({fact.why})" for fact in self._lacking(report)]
        slots, why = self.slots()
        if why:
            missing.append(f"uids for {self._settings.workers} slots ({why})")
        refusal: ExecutorUnavailableError | None = None
        rootfs = None
        try:
            rootfs = self._verified(slots)
        except ExecutorUnavailableError as error:
            refusal = error
            missing.append(str(error))
        if rootfs is None or missing:
            if refusal is not None and len(missing) == 1:
                raise refusal
            raise ExecutorUnavailableError(f"{self.backend} lacks here: {'; '.join(missing)}")
        return {
            "places": self._places(report),
            "subids": slots,
            "rootfs": rootfs.path,
            "rootfs_identity": [rootfs.device, rootfs.inode],
            "rootfs_sha256": rootfs.digest,
            "packs": list(rootfs.packs),
            "interpreters": self._inside(rootfs.path),
        }

    def _lacking(self, report: probe.HostReport) -> list[probe.Fact]:
        """Return what the host does not give, of what a control of this backend is made of."""
        needed = {*probe.NAMESPACES, *probe.CONFINEMENT, *probe.UNIFIED}
        if self._settings.seccomp:
            needed.add("seccomp")
        return [fact for fact in report.facts if fact.control in needed and not fact.available]

    def _places(self, report: probe.HostReport) -> list[probe.Place]:
        return [] if report.unified is None else [report.unified]

    def _verified(self, slots: list[int]) -> Rootfs:
        from rookhold_exec.rootfs import verify  # only this backend reads one

        settings = self._settings
        if settings.rootfs is None:
            raise ExecutorUnavailableError(
                "a root file system for jobs (ROOKHOLD_ROOTFS is not set;"
                " `rookhold rootfs build DIR` makes one)"
            )
        first, _, count = slots or (settings.uid_base, 0, settings.workers)
        uids = range(first, first + count)
        return verify(settings.rootfs, pinned=settings.rootfs_sha256, uids=uids)

    def _inside(self, rootfs: str) -> dict[str, str]:
        """Return the path within the root file system of each interpreter that it holds."""
        from rookhold_exec.rootfs import find_in

        names = self._settings.interpreters().values()
        return {name: path for name in names if (path := find_in(rootfs, name)) is not None}

    def hello(self) -> dict[str, Any]:
        surveyed = self._surveyed
        return {
            **super().hello(),
            "rootfs": surveyed["rootfs"],
            "rootfs_identity": surveyed["rootfs_identity"],
        }

    def locate(self, name: str) -> str | None:
        found: dict[str, str] = self._surveyed["interpreters"]
        return name if name in found.values() else found.get(name)

    def packs(self) -> tuple[str, ...]:
        return tuple(self._surveyed.get("packs", ()))

    async def open(self) -> None:
        """Start the launcher, and refuse to work where a promised control was not seen."""
        await super().open()
        absent = sorted(self._promised() - set(self._controls))
        if absent:
            await self.close()
            raise ExecutorUnavailableError(
                f"{self.backend} does not hold here what it promises: {', '.join(absent)}",
                controls=", ".join(absent),
            )

    def _promised(self) -> frozenset[str]:
        """Return the controls to insist on: not the filter if an operator turned it off."""
        left_out = self._settings.faults | (set() if self._settings.seccomp else {"seccomp"})
        return PROMISED - left_out

    @property
    def posture(self) -> Posture:
        posture = super().posture
        isolation_class = _class_of(self.backend, self._controls)
        return replace(
            posture,
            isolation_class=isolation_class,
            isolated=isolation_class is not IsolationClass.NONE,
            private_rootfs="private-rootfs" in self._controls,
        )

    def _observed(self, plan: SandboxPlan, controls: tuple[str, ...]) -> Provenance:
        isolation_class = _class_of(self.backend, controls)
        private = "private-rootfs" in controls
        return replace(
            super()._observed(plan, controls),
            isolation_class=isolation_class,
            isolated=isolation_class is not IsolationClass.NONE,
            private_rootfs=private,
            rootfs_sha256=self._surveyed["rootfs_sha256"] if private else None,
            runtime_pack=self.pack_of(plan) if private else None,
        )


def check_platform(backend: Backend) -> None:
    """Raise UnsupportedPlatformError on anything but Linux on x86-64."""
    if not sys.platform.startswith("linux") or os.uname().machine != "x86_64":
        raise UnsupportedPlatformError(f"{backend} exists on Linux x86-64 only", backend=backend)


def _class_of(backend: Backend, controls: tuple[str, ...]) -> IsolationClass:
    """Return the class of a boundary: what was reviewed is all of its controls together."""
    whole = set(controls) >= PROMISED
    return BACKEND_FACTS[backend].isolation_class if whole else IsolationClass.NONE
