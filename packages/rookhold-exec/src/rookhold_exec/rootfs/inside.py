"""Looks up a program as a job will: links lead within the root file system, never out of it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from rookhold_exec.interpreters import SYSTEM_PATH

_LINKS_MAX: Final = 40


def find_in(rootfs: str, name: str) -> str | None:
    """Return the path, within the tree at `rootfs`, of a program that everybody may run there.

    A bare name is looked for on the path of jobs; an absolute one stands for itself.
    """
    if "/" in name and not name.startswith("/"):
        return None
    candidates = [name] if name.startswith("/") else [f"{d}/{name}" for d in SYSTEM_PATH.split(":")]
    return next((path for path in candidates if _runs(rootfs, path)), None)


def _runs(rootfs: str, path: str) -> bool:
    real = _resolved(rootfs, path)
    if real is None:
        return False
    mode = os.lstat(rootfs + real).st_mode
    return stat.S_ISREG(mode) and bool(mode & stat.S_IXOTH)


def _resolved(rootfs: str, path: str) -> str | None:
    """Return `path` with its links followed as if `rootfs` were the root; None if it is nowhere."""
    waiting = path.split("/")[::-1]
    reached: list[str] = []
    links = 0
    while waiting:
        part = waiting.pop()
        if part in {"", "."}:
            continue
        if part == "..":
            reached = reached[:-1]
            continue
        here = "/".join(["", *reached, part])
        try:
            mode = os.lstat(rootfs + here).st_mode
            target = str(Path(rootfs + here).readlink()) if stat.S_ISLNK(mode) else None
        except (OSError, ValueError):
            return None
        if target is None:
            reached.append(part)
            continue
        links += 1
        if links > _LINKS_MAX:
            return None
        if target.startswith("/"):
            reached = []
        waiting += target.split("/")[::-1]
    return "/".join(["", *reached])
