"""Bringing back the requested outputs, from inside, after everybody else is gone.

The files are hostile: each is opened below the working directory through no link and no mount,
without blocking, and looked at before it is read.
"""

from __future__ import annotations

import os
import stat
from errno import EACCES, ELOOP, ENOENT, ENOTDIR, ENXIO, EPERM, EXDEV
from time import monotonic

from rookhold_exec.launcher.kernel import open_beneath
from rookhold_exec.launcher.protocol import OUTPUT, send_frame

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

FILE_MAX = 2 << 20
TOTAL_MAX = 4 << 20
_SECONDS = 5.0  # for all of them; what is left then is unreadable

_REASONS = {
    ELOOP: "link",
    ENOENT: "missing",
    ENOTDIR: "missing",
    ENXIO: "not_regular",
    EXDEV: "not_regular",
    EACCES: "unreadable",
    EPERM: "unreadable",
}
_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW


def send_all(control: socket, outputs: list[str], directory: str) -> None:
    """Send one frame for each requested output, in their order."""
    if not outputs:
        return
    until = monotonic() + _SECONDS
    work = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    left = TOTAL_MAX
    for path in outputs:
        value: dict[str, object] = {"op": OUTPUT, "path": path}
        content = read(work, path, left) if monotonic() < until else "unreadable"
        if isinstance(content, bytes):
            left -= len(content)
            value["content"] = content
        else:
            value["reason"] = content
        send_frame(control, value)


def read(work: int, path: str, left: int) -> bytes | str:
    """Return the content of one output, or the reason why there is none."""
    try:
        fd = open_beneath(work, path.encode(), _FLAGS)
    except OSError as error:
        return _REASONS.get(error.errno or 0, "unreadable")
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            return "not_regular"
        if not before.st_mode & stat.S_IRUSR or _shut(work, path):
            return "unreadable"  # its owner could not read it either
        if before.st_nlink > 1:
            return "link"
        if before.st_size > FILE_MAX:
            return "too_large"
        if before.st_size > left:
            return "total_too_large"
        return _whole(fd, before)
    except OSError:
        return "unreadable"
    finally:
        os.close(fd)


def _shut(work: int, path: str) -> bool:
    """Say whether a directory on the way lets not even its owner through, whoever we are."""
    at = path.find("/")
    while at >= 0:
        if not os.lstat(path[:at], dir_fd=work).st_mode & stat.S_IXUSR:
            return True
        at = path.find("/", at + 1)
    return False


def _whole(fd: int, before: os.stat_result) -> bytes | str:
    parts = []
    size = 0
    while size <= before.st_size and (part := os.read(fd, 1 << 20)):
        parts.append(part)
        size += len(part)
    after = os.fstat(fd)
    same = size == before.st_size == after.st_size and before.st_mtime_ns == after.st_mtime_ns
    return b"".join(parts) if same else "changed"
