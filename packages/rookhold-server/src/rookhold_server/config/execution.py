"""What the executor is told of the settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from rookhold_exec.settings import ExecSettings

if TYPE_CHECKING:
    from rookhold_exec.launcher.spawner import Spawner
    from rookhold_server.config.settings import Settings


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
