"""bubblewrap by hand: the namespaces that our own sandbox makes, and nothing else of it.

No filter, no resource limits, no cgroup, no quota, no read-back: it does less than what it is
compared with.
The baseline server starts its jobs with it as well.
"""

from __future__ import annotations

import shutil
from pathlib import Path

_NAMESPACES = ("user", "pid", "net", "ipc", "uts", "cgroup")  # a mount namespace it always makes
_LINKED = ("bin", "sbin", "lib", "lib64")


def find() -> str | None:
    return shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")


def wrapped(bwrap: str, argv: list[str], *, work: str | None = None) -> list[str]:
    """Return the command line; `work` is a directory of the host to be seen as /work."""
    options = [bwrap]
    options += [f"--unshare-{name}" for name in _NAMESPACES]
    options += ["--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    options += ["--uid", "1000", "--gid", "1000", "--hostname", "sandbox"]
    options += ["--ro-bind", "/usr", "/usr"]
    for name in _LINKED:
        place = Path("/", name)
        if place.is_symlink():
            options += ["--symlink", str(place.readlink()), str(place)]
        elif place.is_dir():
            options += ["--ro-bind", str(place), str(place)]
    options += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    if work is None:
        options += ["--dir", "/work"]
    else:
        options += ["--ro-bind", work, "/work"]
    return [*options, "--chdir", "/work", "--", *argv]
