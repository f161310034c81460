"""What an executor needs to be told; it reads no environment of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from rookhold_exec.launcher.spawner import Spawner

SLOT_UID_BASE = 210_000


class ExecSettings(Struct, frozen=True, kw_only=True):
    """One value for all backends; each takes what concerns it.

    `path` is the server's own PATH, which only `off` uses. `launcher` is the interpreter of the
    launcher with its options. `faults` names controls that are left out on purpose, so that tests
    can see a receipt that lacks them; nothing but a test ever sets it.

    `rootfs` is the private root of the isolated backends, `rootfs_sha256` the digest its manifest
    must have. `production` holds what only development may do without.

    Where a root supervisor starts the launcher for a server without privileges, `spawner` is the
    way to it, and `surveyed` is what was found out for the server.
    """

    workers: int = 2  # slots; as root each has a uid of its own
    uid_base: int = SLOT_UID_BASE
    seccomp: bool = True
    python: str = "python3"
    node: str = "node"
    bash: str = "bash"
    jobs_root: str | None = None
    path: str = ""
    launcher: tuple[str, ...] = (sys.executable, "-I", "-S")
    faults: frozenset[str] = frozenset()
    production: bool = False
    rootfs: str | None = None
    rootfs_sha256: str | None = None
    runsc: str | None = None
    runsc_platform: str = "systrap"
    gvisor_uid: int = 65534
    gvisor_gid: int = 65534
    spawner: "Spawner | None" = None
    surveyed: dict[str, Any] | None = None

    def interpreters(self) -> dict[str, str]:
        """Return the configured interpreter of each language."""
        return {"python": self.python, "node": self.node, "bash": self.bash}
