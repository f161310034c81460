"""The container runtime that an operator has reviewed: may it be trusted, and what is it?"""

from __future__ import annotations

import hashlib
import os
import selectors
import stat
import subprocess
from time import monotonic
from typing import Final

from msgspec import Struct

from rookhold_exec.errors import ExecutorUnavailableError

_SECONDS: Final = 10.0
_SAID_MAX: Final = 1 << 20
_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_GET: Final = "Debian: the package runsc; else https://gvisor.dev/docs/user_guide/install/"


class Runsc(Struct, frozen=True):
    """One file; `identity` is what its descriptor shows as long as nobody touches it."""

    path: str
    version: str
    sha256: str
    identity: tuple[int, ...]
    flags: frozenset[str]


def identity(path: str) -> tuple[int, ...]:
    """Return what changes when somebody replaces or writes to the file at `path`."""
    return _identity(os.lstat(path))


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (
        *(status.st_dev, status.st_ino, status.st_size),
        *(status.st_mtime_ns, status.st_ctime_ns),
    )


def examine(path: str) -> Runsc:
    """Read and ask it, by one descriptor. Raises ExecutorUnavailableError."""
    _check_way(path)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise ExecutorUnavailableError(f"a runsc that can be read ({_GET})") from error
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or not status.st_mode & stat.S_IXUSR:
            raise ExecutorUnavailableError("a runsc that is an executable file")
        if status.st_uid != 0 or status.st_mode & _BY_OTHERS:
            raise ExecutorUnavailableError("a runsc that only root can change")
        with open(fd, "rb", closefd=False) as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        version = _asked(fd, "--version").partition("\n")[0].removeprefix("runsc version ").strip()
        flags = frozenset(
            line.split()[0].lstrip("-")
            for line in _asked(fd, "flags").splitlines()
            if line.startswith("  -")
        )
    finally:
        os.close(fd)
    return Runsc(path, version[:64], digest, _identity(status), flags)


def _check_way(path: str) -> None:
    """Refuse a path that others could make lead to another file."""
    if not path.startswith("/") or os.path.normpath(path) != path:
        raise ExecutorUnavailableError("an absolute, plain path of runsc")
    parts = path.split("/")[1:-1]
    for depth in range(len(parts) + 1):
        try:
            status = os.lstat("/" + "/".join(parts[:depth]))
        except OSError as error:
            raise ExecutorUnavailableError(f"a runsc at its path ({_GET})") from error
        others = status.st_mode & _BY_OTHERS and not status.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != 0 or others:
            raise ExecutorUnavailableError("a runsc in directories of root's, without a link")


def _asked(fd: int, word: str) -> str:
    """Return what it prints; to pipes, because it hangs or fails with other kinds of output."""
    try:
        with subprocess.Popen(  # noqa: S603 - the file that is being examined
            [f"/proc/self/fd/{fd}", word],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(fd,),
            env={},
        ) as asked:
            try:
                said = _said(asked)
            finally:
                asked.kill()
    except (OSError, subprocess.SubprocessError) as error:
        raise ExecutorUnavailableError(f"a runsc that answers `{word}` in time") from error
    return said.decode("utf-8", "replace")


def _said(asked: subprocess.Popen[bytes]) -> bytes:
    """Read both of its streams to their ends. Raises SubprocessError for a late or endless one."""
    until = monotonic() + _SECONDS
    parts: dict[int, bytes] = {}
    with selectors.DefaultSelector() as open_ones:
        for stream in (asked.stdout, asked.stderr):
            if stream is not None:
                parts[open_ones.register(stream, selectors.EVENT_READ).fd] = b""
        while open_ones.get_map():
            ready = open_ones.select(max(0.0, until - monotonic()))
            if not ready or monotonic() > until or sum(map(len, parts.values())) > _SAID_MAX:
                raise subprocess.SubprocessError
            for key, _ in ready:
                if part := os.read(key.fd, 1 << 16):
                    parts[key.fd] += part
                else:
                    open_ones.unregister(key.fileobj)
    if asked.wait(max(0.0, until - monotonic())) != 0:
        raise subprocess.SubprocessError
    return b"".join(parts.values())
