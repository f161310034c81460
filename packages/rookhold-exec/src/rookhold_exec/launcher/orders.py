"""Which orders for a job a launcher takes.

A launcher that is root serves a server that is not, and that may have been taken over. Everything a
job can hurt the host with is settled in HELLO, which a root supervisor sends; what comes with each
job is only taken within that. The rest of an order concerns nobody but the job.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAME = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_NAME_MAX = 64


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
    for path in (message["script"], *message["outputs"]):
        if not is_inside(path):
            raise OrderError("a path that leads out of the job's directory")


def is_inside(path: object) -> bool:
    """Say whether a path, taken from a job's own directory, stays in it."""
    return isinstance(path, str) and not {"", ".", ".."}.intersection(path.split("/"))
