"""The resource limits of a job's processes, as data that is set, and read back as it was set."""

from __future__ import annotations

from resource import (
    RLIMIT_CORE,
    RLIMIT_CPU,
    RLIMIT_FSIZE,
    RLIMIT_MEMLOCK,
    RLIMIT_MSGQUEUE,
    RLIMIT_NOFILE,
    RLIMIT_NPROC,
    setrlimit,
)

OPEN_FILES = 1024
_LOCKED_BYTES = 64 * 1024

Limit = tuple[int, bytes, int, int]  # resource, its name in /proc/<pid>/limits, soft, hard


def wanted(*, cpu_seconds: int, file_bytes: int, processes: int) -> tuple[Limit, ...]:
    """Return what one process of a job gets.

    CPU time is the supervisor's to limit, from an exact counter. The kernel compares an rlimit with
    a sampled one that may run a tenth ahead of it, so the rlimit lies above and is only a backstop.
    Its hard value is a second higher still: at equal limits the kernel kills without the SIGXCPU
    that tells why.
    """
    backstop = cpu_seconds + 1 + cpu_seconds // 4
    return (
        (RLIMIT_CPU, b"Max cpu time", backstop, backstop + 1),
        (RLIMIT_FSIZE, b"Max file size", file_bytes, file_bytes),
        (RLIMIT_CORE, b"Max core file size", 0, 0),
        (RLIMIT_NPROC, b"Max processes", processes, processes),
        (RLIMIT_NOFILE, b"Max open files", OPEN_FILES, OPEN_FILES),
        (RLIMIT_MEMLOCK, b"Max locked memory", _LOCKED_BYTES, _LOCKED_BYTES),
        (RLIMIT_MSGQUEUE, b"Max msgqueue size", 0, 0),
    )


def apply(limits: tuple[Limit, ...]) -> None:
    """Set them on this process; never above a hard limit that it already has."""
    for resource, _, soft, hard in limits:
        setrlimit(resource, (soft, hard))


def in_force(limits: tuple[Limit, ...], text: bytes) -> bool:
    """Say whether the text of /proc/<pid>/limits shows every one of them."""
    shown = {line[:26].strip(): line[26:].split()[:2] for line in text.split(b"\n")}
    return all(shown.get(name) == [b"%d" % soft, b"%d" % hard] for _, name, soft, hard in limits)
