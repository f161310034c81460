"""The launcher's own descriptors lie high, so that a child closes them all at once."""

from __future__ import annotations

from fcntl import F_DUPFD_CLOEXEC, fcntl

HIGH = 512  # the first of them


def raise_descriptor(fd: int) -> int:
    """Return a copy of `fd` among them; the low one stays the caller's to close."""
    return fcntl(fd, F_DUPFD_CLOEXEC, HIGH)
