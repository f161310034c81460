"""The resource limits of a job's processes, as data that is set, and read back as it was set."""

from __future__ import annotations

from resource import (
    RLIM_INFINITY,
    RLIMIT_CORE,
    RLIMIT_CPU,
    RLIMIT_FSIZE,
    RLIMIT_MEMLOCK,
    RLIMIT_MSGQUEUE,
    RLIMIT_NICE,
    RLIMIT_NOFILE,
    RLIMIT_NPROC,
    RLIMIT_RTPRIO,
    RLIMIT_SIGPENDING,
    getrlimit,
    setrlimit,
)

OPEN_FILES = 1024
_LOCKED_BYTES = 64 * 1024
_QUEUED_SIGNALS = 4096  # each kernel timer counts as one too

Limit = tuple[int, bytes, int, int]  # resource, its name in /proc/<pid>/limits, soft, hard


def wanted(
    *, cpu_seconds: int, file_bytes: int, processes: int, counted: bool = False
) -> tuple[Limit, ...]:
    """Return what one process of a job gets.

    CPU time is the supervisor's to limit, from an exact counter. The kernel compares an rlimit with
    a sampled one that may run a tenth ahead of it, so the rlimit lies above and is only a backstop.
    Its hard value is a second higher still: at equal limits the kernel kills without the SIGXCPU
    that tells why.

    With `counted` a group holds the job to its processes and counts the forks that it refuses. The
    rlimit, which comes first and counts nothing, is one above it and a backstop too.

    A limit that a receipt tells as a number is wanted exactly. The others are at most what the
    server was started with: whoever lowered them there meant it, and nothing is claimed of them.
    """
    backstop = cpu_seconds + 1 + cpu_seconds // 4
    processes += counted
    return (
        _at_most(RLIMIT_CPU, b"Max cpu time", backstop, backstop + 1),
        (RLIMIT_FSIZE, b"Max file size", file_bytes, file_bytes),
        # At 0 the kernel still starts the helper of a piped core_pattern, with the whole image; at
        # 1 it makes none at all.
        _at_most(RLIMIT_CORE, b"Max core file size", 1, 1),
        (RLIMIT_NPROC, b"Max processes", processes, processes),
        _at_most(RLIMIT_NOFILE, b"Max open files", OPEN_FILES, OPEN_FILES),
        _at_most(RLIMIT_MEMLOCK, b"Max locked memory", _LOCKED_BYTES, _LOCKED_BYTES),
        _at_most(RLIMIT_SIGPENDING, b"Max pending signals", _QUEUED_SIGNALS, _QUEUED_SIGNALS),
        (RLIMIT_MSGQUEUE, b"Max msgqueue size", 0, 0),
        # A server that may set priorities does not hand that on.
        (RLIMIT_NICE, b"Max nice priority", 0, 0),
        (RLIMIT_RTPRIO, b"Max realtime priority", 0, 0),
    )


def apply(limits: tuple[Limit, ...]) -> None:
    """Set them on this process, or what its hard limits leave of them.

    In its user namespace nobody can raise one. What was cut short is not read back as it was
    wanted, so that it is not claimed; the job still runs, under less than it asked for.
    """
    for limit in limits:
        resource, _, soft, hard = _at_most(*limit)
        setrlimit(resource, (soft, hard))


def _at_most(resource: int, name: bytes, soft: int, hard: int) -> Limit:
    inherited = getrlimit(resource)[1]
    if inherited == RLIM_INFINITY:
        return resource, name, soft, hard
    return resource, name, min(soft, inherited), min(hard, inherited)


def in_force(limits: tuple[Limit, ...], text: bytes) -> bool:
    """Say whether the text of /proc/<pid>/limits shows every one of them."""
    shown = {line[:26].strip(): line[26:].split()[:2] for line in text.split(b"\n")}
    return all(shown.get(name) == [b"%d" % soft, b"%d" % hard] for _, name, soft, hard in limits)
