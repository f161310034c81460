"""Where the interpreter of a language is, and what a job finds in its environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from msgspec import Struct

PROBE_SECONDS: Final = 20
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
# A sandbox holds these and the few files of /etc; an interpreter elsewhere would not start in it.
_VISIBLE: Final = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/")


class Interpreter(Struct, frozen=True):
    """An interpreter that was found; `version` once its probe has answered."""

    language: str
    path: str
    version: str | None = None


def find(name: str, path: str) -> str | None:
    """Return the absolute path of an executable on `path`; an absolute name stands for itself."""
    candidates = [name] if name.startswith("/") else [f"{d}/{name}" for d in path.split(":") if d]
    if "/" in name and not name.startswith("/"):
        return None
    for candidate in candidates:
        # Asked first: a directory that is closed to us is an error to `is_file`.
        if os.access(candidate, os.X_OK) and Path(candidate).is_file():
            return candidate
    return None


def find_visible(name: str) -> str | None:
    """Return an interpreter that a namespace job will see, on the system's path alone."""
    found = find(name, SYSTEM_PATH)
    if found is None or not found.startswith(_VISIBLE):
        return None
    return found if str(Path(found).resolve()).startswith(_VISIBLE) else None


def environment(*, path: str, home: str) -> dict[bytes, bytes]:
    """Return everything that a job's environment holds."""
    return {
        b"PATH": os.fsencode(path),
        b"HOME": os.fsencode(home),
        b"TMPDIR": b"/tmp" if home == "/tmp" else os.fsencode(home),  # noqa: S108 - the job's own
        b"LANG": b"C.UTF-8",
    }


def version_of(text: str) -> str | None:
    """Return the version that the first line of `--version` states, without the program's name."""
    for word in text.partition("\n")[0].replace("(", " ").split():
        bare = word.lstrip("v")
        if bare[:1].isdigit():
            return bare[:64]
    return None
