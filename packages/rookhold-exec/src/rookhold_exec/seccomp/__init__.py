"""The system call filter of a sandboxed job, as bytes made at build time.

`policy.toml` says what is allowed and why; `build` turns it into the program with libseccomp. At
run time only the bytes are read: no job waits for a filter to be built, and no host needs the
library.
"""

import functools
import hashlib
import os
from pathlib import Path

__all__ = ["digest", "path", "program"]


def path(machine: str | None = None) -> Path | None:
    """Return the file of the filter for this machine; None if it has none."""
    name = os.uname().machine if machine is None else machine
    return Path(__file__).parent / "x86_64.bpf" if name == "x86_64" else None


@functools.cache
def program(machine: str | None = None) -> bytes | None:
    """Return the filter for this machine as an array of `struct sock_filter`; None if it has none.

    Installing it (PR_SET_NO_NEW_PRIVS first, then PR_SET_SECCOMP) is the launcher's work.
    """
    file = path(machine)
    return None if file is None else file.read_bytes()


def digest(machine: str | None = None) -> str | None:
    """Return the SHA-256 of `program`, or None where there is no filter."""
    code = program(machine)
    return None if code is None else hashlib.sha256(code).hexdigest()
