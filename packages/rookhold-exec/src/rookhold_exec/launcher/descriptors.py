"""The launcher's own descriptors lie high, so that a child closes them all at once."""

from __future__ import annotations

import os
from errno import EINVAL, EMFILE
from fcntl import F_DUPFD_CLOEXEC, fcntl

HIGH = 512  # the first of them


def raise_descriptor(fd: int) -> int:
    """Return a copy of `fd` among them; the low one stays the caller's to close."""
    try:
        return fcntl(fd, F_DUPFD_CLOEXEC, HIGH)
    except OSError as error:
        if error.errno == EINVAL:  # the limit on open files allows no number that high
            raise OSError(EMFILE, os.strerror(EMFILE)) from error
        raise
