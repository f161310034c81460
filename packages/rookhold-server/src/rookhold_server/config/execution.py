"""What the executor is told of the settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from rookhold_exec.settings import ExecSettings
from rookhold_server.config.settings import Settings, read_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rookhold_exec.launcher.spawner import Spawner

# What the executor depends on; the rest of a configuration may still be missing or wrong.
ISOLATION: Final = (
    "ROOKHOLD_SANDBOX",
    "ROOKHOLD_ROOTFS",
    "ROOKHOLD_SANDBOX_UID_BASE",
    "ROOKHOLD_SECCOMP",
    "ROOKHOLD_GVISOR_RUNSC",
    "ROOKHOLD_GVISOR_ROOTFS_SHA256",
    "ROOKHOLD_GVISOR_PLATFORM",
    "ROOKHOLD_GVISOR_UID",
    "ROOKHOLD_GVISOR_GID",
    "ROOKHOLD_PYTHON",
    "ROOKHOLD_NODE",
    "ROOKHOLD_BASH",
    "ROOKHOLD_WORKERS",
    "ROOKHOLD_ENV",
)


def exec_settings(
    settings: Settings,
    *,
    spawner: Spawner | None = None,
    surveyed: dict[str, Any] | None = None,
) -> ExecSettings:
    """`spawner` and `surveyed` come from a root supervisor, where there is one."""
    return ExecSettings(
        workers=settings.workers,
        uid_base=settings.sandbox_uid_base,
        seccomp=settings.seccomp,
        jobs_root=str(settings.jobs_root),
        production=settings.production,
        rootfs=None if settings.rootfs is None else str(settings.rootfs),
        rootfs_sha256=settings.rootfs_sha256,
        runsc=None if settings.runsc is None else str(settings.runsc),
        runsc_platform=settings.runsc_platform,
        gvisor_uid=settings.gvisor_uid,
        gvisor_gid=settings.gvisor_gid,
        path=os.environ.get("PATH", ""),
        python=settings.interpreters["python"],
        node=settings.interpreters["node"],
        bash=settings.interpreters["bash"],
        spawner=spawner,
        surveyed=surveyed,
    )


def trial_settings(environ: Mapping[str, str], jobs_root: str) -> tuple[str, ExecSettings]:
    """Return the backend asked for and its settings, to try a sandbox without a gateway.

    Raises SettingError for a variable of isolation; no other is looked at.
    """
    named = {name: environ[name] for name in ISOLATION if name in environ}
    rest = {
        "ROOKHOLD_DB": f"{jobs_root}/unused.db",
        "ROOKHOLD_JOBS_ROOT": jobs_root,
        "ROOKHOLD_ATTESTATION_MODE": "off",
    }
    settings = read_settings({**named, **rest})
    return settings.sandbox, exec_settings(settings)
