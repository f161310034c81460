"""Uids for the jobs of a server that is not root: the range that the system set aside for it."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct

PATH: Final = "/usr/bin:/bin"  # the launcher's own
_PROGRAMS: Final = ("newuidmap", "newgidmap")
_SECONDS: Final = 10.0
_TRIAL: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]);"
    "from rookhold_exec.launcher.usermap import enter_range;"
    "enter_range(*map(int, sys.argv[2:]))"
)


class Range(Struct, frozen=True):
    """As many uids as gids, from these on."""

    uid: int
    gid: int
    count: int

    def told(self) -> list[int]:
        """Return it as the launcher takes it."""
        return [self.uid, self.gid, self.count]


def find(count: int = 1, *, root: Path = Path("/etc")) -> tuple[Range | None, str]:
    """Return a range for `count` slots that was tried, or nothing and what is missing."""
    for program in _PROGRAMS:
        if shutil.which(program, path=PATH) is None:
            return None, f"{program} is not installed (Debian: uidmap)"
    uid, gid = _first(root / "subuid", count), _first(root / "subgid", count)
    if uid is None or gid is None:
        name = "subuid" if uid is None else "subgid"
        return None, (
            f"this user has no range of {count} in /etc/{name}"
            " (usermod --add-subuids and --add-subgids make one)"
        )
    found = Range(uid, gid, count)
    return (found, "tried, and it works") if _works(found) else (None, _REFUSED)


_REFUSED: Final = (
    "newuidmap is refused: no_new_privs or a security module may forbid it, or it lacks its setuid"
    " bit"
)


def _first(path: Path, count: int) -> int | None:
    """Return where this user's first range of that size begins."""
    try:
        names = {str(os.getuid()), getpass.getuser()}
        lines = path.read_text("utf-8").splitlines()
    except (OSError, KeyError, UnicodeDecodeError):
        return None
    for line in lines:
        name, _, numbers = line.partition(":")
        first, _, size = numbers.partition(":")
        if name in names and first.isdigit() and size.isdigit() and int(size) >= count:
            return int(first)
    return None


def _works(found: Range) -> bool:
    argv = [sys.executable, "-I", "-S", "-c", _TRIAL, str(Path(__file__).parents[1])]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and program
            [*argv, "0", *map(str, found.told())],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            env={"PATH": PATH},
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
