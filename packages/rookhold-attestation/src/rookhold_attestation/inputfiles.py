"""Reading the command line's inputs: regular files of bounded size, no symbolic links."""

import os
import stat
from pathlib import Path
from typing import Final

from .errors import AttestationError, FileIoError, UnsafeInputFileTypeError

_FLAGS: Final = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a FIFO must not make the open wait
    | getattr(os, "O_BINARY", 0)
)


def read_input(path: Path, kind: str, too_large: AttestationError) -> bytes:
    """Read the file whole; `too_large` carries the limit (`max_bytes`) and is raised above it."""
    most = int(too_large.detail["max_bytes"])
    try:
        if path.is_symlink():  # raises for a path that the system cannot even look up
            raise UnsafeInputFileTypeError
        descriptor = os.open(path, _FLAGS)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnsafeInputFileTypeError
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(most + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as exc:
        raise FileIoError.of(kind, exc) from None
    if len(data) > most:
        raise too_large
    return data
