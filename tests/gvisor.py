"""The gVisor backend for tests, on each runsc that can be had: Debian's stable one and a newer one.

The stable one knows the platform ptrace, which works on every kernel; the newer one has systrap. It
is taken from the mirror that this host is configured for, by its digest, and kept.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from rookhold_exec.backends.gvisor import Gvisor
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Iterable

_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_CACHE: Final = Path(__file__).resolve().parent.parent / ".cache"
_NEWER: Final = "pool/main/g/golang-gvisor-gvisor/runsc_0.0~20240729.0-4+b7_amd64.deb"
_NEWER_SHA256: Final = "3c25a5130dfac2f71237d5baad56ac86a255de87a0400f11b36a555156dc325a"
_SECONDS: Final = 120

_MARKS = (pytest.mark.rootfs, pytest.mark.groups("memory", "pids"))
STABLE = pytest.param("ptrace", marks=(pytest.mark.runsc, *_MARKS), id="ptrace")
NEWER = pytest.param("systrap", marks=(pytest.mark.runsc("newer"), *_MARKS), id="systrap")
PLATFORMS = [STABLE, NEWER]


def stable() -> str:
    """Return the runsc of this host, or nothing."""
    found = shutil.which("runsc", path=_PATH)
    return "" if found is None else str(Path(found).resolve())  # no link leads to it


@cache
def newer() -> str:
    """Return the newer runsc, fetching it if nobody has yet; nothing where it cannot be had."""
    place = Path(os.environ.get("ROOKHOLD_TEST_CACHE") or _CACHE) / f"runsc-{_NEWER_SHA256[:16]}"
    runsc = place / "usr/bin/runsc"
    if runsc.exists():
        return str(runsc)
    place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with Path(f"{place}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not runsc.exists() and shutil.which("dpkg-deb"):
            _fetch(place)
    return str(runsc) if runsc.exists() else ""


def _fetch(place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent) as name:
        package, tree = Path(name, "runsc.deb"), Path(name, "tree")
        for mirror in _mirrors():
            try:
                with urllib.request.urlopen(f"{mirror}/{_NEWER}", timeout=_SECONDS) as answer:
                    package.write_bytes(answer.read(64 << 20))
            except OSError:
                continue
            if hashlib.sha256(package.read_bytes()).hexdigest() == _NEWER_SHA256:
                subprocess.run(["dpkg-deb", "-x", package, tree], check=True, timeout=_SECONDS)
                tree.chmod(0o755)
                tree.rename(place)
                return


def _mirrors() -> Iterable[str]:
    """Yield the addresses that apt takes packages from here."""
    sources = Path("/etc/apt")
    for path in (*sources.glob("sources.list"), *sources.glob("sources.list.d/*")):
        text = path.read_text("utf-8", "replace")
        yield from (found.rstrip("/") for found in re.findall(r"https?://\S+/debian/?(?=\s)", text))


def lacking(kind: str = "") -> str:
    """Say what this host lacks to run a sandbox kernel; nothing if it lacks nothing."""
    if not stable():
        return "no runsc to run a sandbox kernel with"
    if kind == "newer" and not newer():
        return "no newer runsc: no mirror of Debian that has it answers"
    return ""


def settings(platform: str, **more: Any) -> ExecSettings:
    """Return settings for one platform, with the runsc that has it and the root of the tests."""
    from rootfs import test_rootfs

    return ExecSettings(
        workers=4,
        rootfs=str(test_rootfs()),
        rootfs_sha256=more.pop("rootfs_sha256", None) or _pinned(),
        runsc=more.pop("runsc", None) or (stable() if platform == "ptrace" else newer()),
        runsc_platform=platform,
        **more,
    )


@cache
def _pinned() -> str:
    from rootfs import test_rootfs

    from rookhold_exec.rootfs import verify

    return verify(str(test_rootfs())).digest


@cache
def surveyed(platform: str) -> dict[str, Any]:
    """Return what this host was found to offer; to read the whole root takes seconds."""
    return {"note": "for a test", "found": Gvisor(settings(platform), "").survey()}


def executor(platform: str, **more: Any) -> Gvisor:
    known = more.pop("surveyed", None) or surveyed(platform)
    return Gvisor(settings(platform, surveyed=known, **more), "for a test")


def opened(platform: str, **more: Any) -> Harness:
    """Return the backend ready for jobs; with `faults`, for bash alone."""
    few = {"node": "none", "python": "none"} if "faults" in more else {}
    harness = Harness(executor(platform, **few, **more))
    try:
        harness.do(harness.executor.open())
    except BaseException:
        harness.close()
        raise
    return harness


def groups_left(name: str) -> list[str]:
    """Return the groups of jobs below the launchers' groups with this name, as of this moment."""
    found = []
    for place, below, _ in os.walk("/sys/fs/cgroup"):  # others' may go while it looks
        if name in Path(place).name:
            found += [f"{place}/{each}" for each in below if each.startswith("job-")]
    return found
