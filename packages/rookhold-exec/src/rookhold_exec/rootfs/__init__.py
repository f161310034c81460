"""The private root of the isolated backends: what it holds, whether it may be used, its digest."""

from __future__ import annotations

from rookhold_exec.rootfs.errors import RootfsError
from rookhold_exec.rootfs.inside import find_in
from rookhold_exec.rootfs.manifest import digest, manifest
from rookhold_exec.rootfs.verify import Rootfs, verify

__all__ = ["Rootfs", "RootfsError", "digest", "find_in", "manifest", "verify"]
