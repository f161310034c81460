"""Asks mmdebstrap for a fresh Debian system as a tar stream, in bounded time.

The mirror is what the host's own apt is configured with, unless the caller names one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from rookhold_exec.rootfs.errors import (
    BuilderMissingError,
    BuildFailedError,
    NoMirrorError,
    PackagesDifferError,
    RootfsError,
)
from rookhold_exec.rootfs.process import BoundedProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rookhold_exec.rootfs.pins import Pins

SECONDS_MAX: Final = 1800

_MERGED_USR: Final = "/usr/share/mmdebstrap/hooks/merged-usr"
_KEYRING: Final = "/usr/share/keyrings/debian-archive-keyring.gpg"
_ASK_SECONDS: Final = 60
_FORWARDED: Final = ("Acquire::http::", "Acquire::https::", "Acquire::Check-", "Acquire::Retries")
_ENVIRONMENT: Final = ("PATH", "HOME", "TMPDIR", "http_proxy", "https_proxy", "no_proxy")
# Bytecode that is never compared with its source: the tree is read-only, and dates are not kept.
_COMPILE: Final = (
    'exec chroot "$1" /usr/bin/env -i PATH=/usr/bin:/bin PYTHONHASHSEED=0 /bin/sh -c'
    ' "exec python3 -I -m compileall -q -f --invalidation-mode unchecked-hash /usr/lib/python3*"'
)
_NOT_FOUND: Final = re.compile(r"E: Version '.*' for '([^']+)' was not found")
_NO_PACKAGE: Final = re.compile(r"E: Unable to locate package (\S+)")


@contextmanager
def system(
    pins: Pins, *, mirrors: Sequence[str], newer: bool, tell: Callable[[str], None]
) -> Iterator[BinaryIO]:
    """Yield the tar stream; leaving without an error means that mmdebstrap succeeded too."""
    tool = shutil.which("mmdebstrap")
    if tool is None:
        raise BuilderMissingError
    wanted = pins.packages
    names = list(wanted) if newer else [f"{name}={version}" for name, version in wanted.items()]
    argv = [
        *_apart(),
        tool,
        f"--mode={'root' if os.geteuid() == 0 else 'unshare'}",
        "--variant=custom",  # nothing but what is listed
        "--format=tar",
        f"--hook-dir={_MERGED_USR}",
        f"--customize-hook={_COMPILE}",
        f"--include={','.join(names)}",
        *(f"--aptopt={line}" for line in apt_options()),
        pins.suite,
        "-",
        *sources(pins.suite, mirrors),
    ]
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    environment |= {"SOURCE_DATE_EPOCH": str(pins.epoch), "LC_ALL": "C.UTF-8"}
    process = BoundedProcess(argv, environment, tell, seconds=SECONDS_MAX)
    try:
        with process:
            yield process.stdout
            process.finish()
    except BuildFailedError as error:
        if error.inside is not None:
            raise
        raise _failure(process.said) from error  # the archive ended early because its maker did


def _apart() -> list[str]:
    """Return what starts a program where its mounts are its own: they end with it, even killed."""
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:  # as another user it makes namespaces itself
        return []
    own = [unshare, "--mount", "--"]
    try:
        subprocess.run(  # noqa: S603 - found by name, with fixed arguments
            [*own, "true"], capture_output=True, check=True, timeout=_ASK_SECONDS
        )
    except (OSError, subprocess.SubprocessError):  # a container that lets not even root mount
        return []
    return own


def apt_options() -> list[str]:
    """Return how the host's apt reaches its mirrors: proxies, certificates, patience."""
    lines = _ask(["apt-config", "dump", "--no-empty"]).splitlines()
    return [line for line in lines if line.startswith(_FORWARDED)]


def sources(suite: str, mirrors: Sequence[str]) -> list[str]:
    if any(not (m.startswith("deb ") or ("://" in m and not m.startswith("-"))) for m in mirrors):
        raise NoMirrorError("a mirror is an address, or a whole line that begins with `deb `")
    if mirrors:
        return list(mirrors)
    suites = {suite, f"{suite}-updates", f"{suite}-security"}
    fields = "$(CREATED_BY)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)|$(ORIGIN)"
    found = set()
    for line in _ask(["apt-get", "indextargets", "--format", fields]).splitlines():
        kind, address, release, component, origin = (line.split("|") + [""] * 5)[:5]
        debian = origin in {"Debian", "$(ORIGIN)"}  # the latter: its lists were not fetched yet
        if kind == "Packages" and release in suites and component == "main" and debian:
            found.add((release, address))
    if suite not in {release for release, _ in found}:
        raise NoMirrorError(suite)
    trust = f"[signed-by={_KEYRING}] " if Path(_KEYRING).is_file() else ""
    return [f"deb {trust}{address} {release} main" for release, address in sorted(found)]


def _ask(argv: list[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - apt, by its fixed name, with fixed arguments
            argv, capture_output=True, check=True, timeout=_ASK_SECONDS, text=True, errors="replace"
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise NoMirrorError from error
    return done.stdout


def _failure(lines: Sequence[str]) -> RootfsError:
    """Say why mmdebstrap failed, as far as its last lines tell."""
    missing = {
        found.group(1)
        for line in lines
        for pattern in (_NOT_FOUND, _NO_PACKAGE)
        if (found := pattern.search(line))
    }
    if missing:
        return PackagesDifferError(", ".join(sorted(missing)))
    return BuildFailedError("mmdebstrap failed; what it said is above")
