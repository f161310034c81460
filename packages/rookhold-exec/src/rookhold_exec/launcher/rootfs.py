"""The root file system that an operator has reviewed: opening it, and telling it from any other."""

from __future__ import annotations

import os
from errno import ESTALE

from rookhold_exec.launcher.kernel import open_plain

Place = tuple[bytes, bytes]  # the device of a mount, and which directory of it is mounted


def open_reviewed(path: str, identity: tuple[int, int]) -> int:
    """Open it through no link; `identity` is the device and inode that were reviewed."""
    fd = open_plain(path.encode(), os.O_PATH | os.O_DIRECTORY)
    found = os.fstat(fd)
    if (found.st_dev, found.st_ino) != identity:
        os.close(fd)
        raise OSError(ESTALE, os.strerror(ESTALE))
    return fd


def place(fd: int) -> Place:
    """Return what the line of a mount of this very directory has to show in any mountinfo."""
    number = _after(_read(f"/proc/self/fdinfo/{fd}"), b"mnt_id:")
    for line in _read("/proc/self/mountinfo").splitlines():
        fields = line.split(b" ")
        if fields[0] == number:
            top = plain(fields[4])
            below = os.readlink(f"/proc/self/fd/{fd}").encode()
            below = below if top == b"/" else below[len(top) :]
            return fields[2], (plain(fields[3]).rstrip(b"/") + below) or b"/"
    raise OSError(ESTALE, os.strerror(ESTALE))


def plain(field: bytes) -> bytes:
    """Undo the octal escapes of a path in mountinfo."""
    first, *others = field.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in others)


def _after(text: bytes, name: bytes) -> bytes:
    for line in text.splitlines():
        if line.startswith(name):
            return line[len(name) :].strip()
    return b""


def _read(path: str) -> bytes:
    with open(path, "rb") as text:
        return text.read()
