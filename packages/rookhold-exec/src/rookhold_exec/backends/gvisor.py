"""Every job in a gVisor sandbox of its own: `gvisor-oci`.

The system calls of a job meet a kernel of its own, an ordinary process without privileges, instead
of the host's. runsc and the root file system are what an operator has reviewed and pinned; before
each job runsc is compared with what was reviewed, here and by the launcher that holds it.

`config_sha256` in a job's evidence is the digest of the exact `config.json` its runsc was given:
the template `launcher/gvisor/config.json` with `bootstrap.sh`, the command, the environment, the
account and the job's resource limits filled in. No id and no path of the host is in it, so jobs of
one language with the same limits have the same digest.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec.structs import replace

from rookhold_exec import probe
from rookhold_exec.backends import runsc
from rookhold_exec.backends.launched import LaunchedExecutor
from rookhold_exec.backends.namespaces import check_platform
from rookhold_exec.errors import (
    ExecutorUnavailableError,
    RuntimeChangedError,
    SandboxStartError,
)
from rookhold_types.isolation import BACKEND_FACTS, Backend, IsolationClass
from rookhold_types.limits import LimitEnforcement
from rookhold_types.runtimes import SOURCE_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from rookhold_exec.executor import Permit, Posture, Provenance, Running, SandboxPlan

GROUPS: Final = frozenset({"cgroup-cpu", "cgroup-memory", "cgroup-pids"})
PROMISED: Final = frozenset(
    {
        *("application-kernel", "capabilities-dropped", "no-new-privileges", "private-rootfs"),
        *("ipc-namespace", "mount-namespace", "network-namespace", "pid-namespace"),
        *("read-only-root", "rlimits", "user-namespace", "uts-namespace", "workspace-quota"),
    }
)

_KVM: Final = "/dev/kvm"
_NEEDED_FLAGS: Final = ("root", "network", "platform", "debug-log", "oci-seccomp")
# Where this runsc knows them: no overlay of its own over the root, a log of the one command that is
# read, and a place for what a sandbox says when it breaks.
_OTHER_FLAGS: Final = ("overlay2=none", "debug-command=run", "panic-log=/bundle/panic")
_QUESTIONS: Final = {
    "python": b"import platform; print(platform.python_version())\n",
    "node": b"console.log(process.version)\n",
    "bash": b'echo "$BASH_VERSION"\n',
}


class Gvisor(LaunchedExecutor):
    """Every job under an application kernel."""

    backend: ClassVar[Backend] = Backend.GVISOR

    def survey(self) -> dict[str, Any]:
        """Look at host, runsc and root file system. Raises one error that names all it misses."""
        check_platform(self.backend)
        looks: tuple[Callable[[], dict[str, Any]], ...] = (
            *(self._privilege, self._groups, self._platform, self._runtime, self._reviewed_root),
        )
        found: dict[str, Any] = {}
        refused: list[ExecutorUnavailableError] = []
        for look in looks:
            try:
                found |= look()
            except ExecutorUnavailableError as error:
                refused.append(error)
        if len(refused) == 1 and type(refused[0]) is not ExecutorUnavailableError:
            raise refused[0]  # it says more by its own code
        if refused:
            missing = "; ".join(map(str, refused))
            raise ExecutorUnavailableError(f"{self.backend} lacks here: {missing}")
        return found

    def _privilege(self) -> dict[str, Any]:
        if os.geteuid() != 0:
            raise ExecutorUnavailableError("root, at least for the launcher")
        return {}

    def _groups(self) -> dict[str, Any]:
        """Version 2 alone in production; in development what there is."""
        report = probe.host()
        if report.unified is not None:
            return {"places": [report.unified]}
        if self._settings.production:
            raise ExecutorUnavailableError(
                "control groups of version 2 (boot with systemd.unified_cgroup_hierarchy=1)"
            )
        return {"places": list(report.places)}

    def _platform(self) -> dict[str, Any]:
        platform = self._settings.runsc_platform
        if platform == "ptrace" and self._settings.production:
            raise ExecutorUnavailableError("another platform than ptrace, which is for development")
        if platform == "kvm" and not Path(_KVM).exists():
            raise ExecutorUnavailableError("/dev/kvm, for the platform kvm (systrap needs nothing)")
        return {}

    def _runtime(self) -> dict[str, Any]:
        if self._settings.runsc is None:
            raise ExecutorUnavailableError("runsc (ROOKHOLD_GVISOR_RUNSC is not set)")
        found = runsc.examine(self._settings.runsc)
        absent = [flag for flag in _NEEDED_FLAGS if flag not in found.flags]
        if absent:
            raise ExecutorUnavailableError(f"a runsc that knows --{', --'.join(absent)}")
        others = [flag for flag in _OTHER_FLAGS if flag.partition("=")[0] in found.flags]
        return {
            "runsc": found.path,
            "runsc_identity": list(found.identity),
            "runsc_flags": [f"--platform={self._settings.runsc_platform}", "--oci-seccomp"]
            + [f"--{flag}" for flag in others],
            "runtime_version": found.version,
            "runtime_sha256": found.sha256,
        }

    def _reviewed_root(self) -> dict[str, Any]:
        from rookhold_exec.rootfs import find_in, verify  # only such backends read one

        settings = self._settings
        if settings.rootfs is None:
            raise ExecutorUnavailableError(
                "a root file system for jobs (ROOKHOLD_ROOTFS is not set;"
                " `rookhold rootfs build DIR` makes one)"
            )
        if settings.rootfs_sha256 is None:
            raise ExecutorUnavailableError(
                "the digest of its root file system (ROOKHOLD_GVISOR_ROOTFS_SHA256 is not set;"
                " `rookhold rootfs manifest DIR` tells it)"
            )
        rootfs = verify(settings.rootfs, pinned=settings.rootfs_sha256, uids=(settings.gvisor_uid,))
        names = settings.interpreters().values()
        return {
            "rootfs": rootfs.path,
            "rootfs_identity": [rootfs.device, rootfs.inode],
            "rootfs_sha256": rootfs.digest,
            "packs": list(rootfs.packs),
            "interpreters": {
                name: path for name in names if (path := find_in(rootfs.path, name)) is not None
            },
        }

    def hello(self) -> dict[str, Any]:
        surveyed = self._surveyed
        told = ("places", "rootfs", "rootfs_identity", "runsc", "runsc_identity", "runsc_flags")
        return {
            "mode": "gvisor",
            "seccomp": None,
            "uid_base": 0,
            "job_uid": self._settings.gvisor_uid,
            "job_gid": self._settings.gvisor_gid,
            "faults": sorted(self._settings.faults),
            **{name: surveyed[name] for name in told},
        }

    def locate(self, name: str) -> str | None:
        found: dict[str, str] = self._surveyed["interpreters"]
        return name if name in found.values() else found.get(name)

    def question(self, language: str, path: str) -> tuple[bytes, list[str]]:
        """Ask with a program: a sandbox is ready when its interpreter has opened one."""
        return _QUESTIONS[language], [path, SOURCE_NAMES[language]]

    def packs(self) -> tuple[str, ...]:
        return tuple(self._surveyed.get("packs", ()))

    def enforcement(self, controls: tuple[str, ...]) -> LimitEnforcement:
        """The kernel of the sandbox counts processes, and a group holds what stands behind it."""
        return LimitEnforcement(
            wall=True,
            cpu="cgroup-cpu" in controls,
            mem="cgroup-memory" in controls,
            pids="cgroup-pids" in controls and "rlimits" in controls,
            file="rlimits" in controls,
        )

    async def open(self) -> None:
        """Start the launcher, and refuse to work where a promised control was not seen."""
        await super().open()
        promised = PROMISED | (GROUPS if self._settings.production else frozenset())
        absent = sorted(promised - self._settings.faults - set(self._controls))
        if absent:
            await self.close()
            raise ExecutorUnavailableError(
                f"{self.backend} does not hold here what it promises: {', '.join(absent)}",
                controls=", ".join(absent),
            )

    async def _start(self, plan: SandboxPlan, permit: Permit | None) -> Running:
        try:
            unchanged = runsc.identity(self._surveyed["runsc"]) == tuple(
                self._surveyed["runsc_identity"]
            )
        except OSError:
            unchanged = False
        if not unchanged:
            raise RuntimeChangedError("runsc is not the file that was reviewed")
        try:
            return await super()._start(plan, permit)
        except SandboxStartError as error:
            if error.stage == "runtime-changed":
                raise RuntimeChangedError("runsc is not the file that was reviewed") from error
            raise

    @property
    def posture(self) -> Posture:
        posture = super().posture
        isolation_class = _class_of(self._controls)
        return replace(
            posture,
            isolation_class=isolation_class,
            isolated=isolation_class is not IsolationClass.NONE,
            private_rootfs="private-rootfs" in self._controls,
        )

    def _observed(self, plan: SandboxPlan, controls: tuple[str, ...]) -> Provenance:
        isolation_class = _class_of(controls)
        private = "private-rootfs" in controls
        surveyed = self._surveyed
        return replace(
            super()._observed(plan, controls),
            isolation_class=isolation_class,
            isolated=isolation_class is not IsolationClass.NONE,
            private_rootfs=private,
            runtime_version=surveyed["runtime_version"],
            runtime_sha256=surveyed["runtime_sha256"],
            rootfs_sha256=surveyed["rootfs_sha256"] if private else None,
            runtime_pack=self.pack_of(plan) if private else None,
        )


def _class_of(controls: tuple[str, ...]) -> IsolationClass:
    """Return the class of a boundary: what was reviewed is all of its controls together."""
    whole = set(controls) >= PROMISED
    return BACKEND_FACTS[Backend.GVISOR].isolation_class if whole else IsolationClass.NONE
