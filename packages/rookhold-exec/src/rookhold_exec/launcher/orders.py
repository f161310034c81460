"""Which orders for a job a launcher takes.

A launcher that is root serves a server that is not, and that may have been taken over. Everything a
job can hurt the host with is settled in HELLO, which a root supervisor sends; what comes with each
job is only taken within that. The rest of an order concerns nobody but the job.
"""

from __future__ import annotations

import os
from stat import S_ISFIFO, S_ISREG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_NAME_MAX = 64
_NUMBER_MAX = 1 << 53  # far above any limit, and below what would upset the arithmetic with it
# The least that each may be: to a tmpfs, 0 means as much as there is.
_NUMBERS = {
    "wall_ms": 0,
    "cpu_seconds": 0,
    "mem_bytes": 0,
    "processes": 0,
    "file_bytes": 0,
    "space_bytes": 1,
    "inodes": 1,
}


class OrderError(Exception):
    """The order would reach beyond the job; nothing of it is done."""


def check(message: dict[str, Any], *, workers: int, directory: str) -> None:
    """Raise OrderError unless the order stays within the launcher's own bounds.

    `directory` is where directories of jobs may be made, or empty where they have none.
    """
    name, slot = message["job"], message["slot"]
    if not isinstance(name, str) or not 0 < len(name) <= _NAME_MAX or not _NAME.issuperset(name):
        raise OrderError("a name that is no name of a job")
    if not isinstance(slot, int) or not 0 <= slot < workers:
        raise OrderError("a slot, and so a uid, that is not ours to give")
    if message["directory"] != (f"{directory}/job-{name}" if directory else ""):
        raise OrderError("a directory that is not this job's")
    outputs = message["outputs"]
    if not isinstance(outputs, list) or not all(
        is_inside(p) for p in (message["script"], *outputs)
    ):
        raise OrderError("a path that leads out of the job's directory")
    for member, least in _NUMBERS.items():
        number = message[member]
        if not isinstance(number, int) or not least <= number <= _NUMBER_MAX:
            raise OrderError("a limit that is no number in range")
    argv, environment = message["argv"], message["environment"]
    if not isinstance(argv, list) or not isinstance(environment, dict) or not argv:
        raise OrderError("no command, or no environment")
    if not all(isinstance(text, bytes) for text in (*argv, *environment, *environment.values())):
        raise OrderError("a command or an environment of something else than bytes")


def check_streams(fds: list[int]) -> None:
    """Raise OrderError unless these are pipes to write to and perhaps a file or pipe to read.

    A directory would be a way out of the job's root, and a socket one out of its network.
    """
    if not 2 <= len(fds) <= 3:
        raise OrderError("too few streams, or too many")
    output, errors, *given = [os.fstat(fd).st_mode for fd in fds]
    if not (S_ISFIFO(output) and S_ISFIFO(errors) and all(map(_is_readable, given))):
        raise OrderError("a stream that is no pipe")


def _is_readable(mode: int) -> bool:
    return S_ISREG(mode) or S_ISFIFO(mode)


def is_inside(path: object) -> bool:
    """Say whether a path, taken from a job's own directory, stays in it."""
    return isinstance(path, str) and not {"", ".", ".."}.intersection(path.split("/"))
