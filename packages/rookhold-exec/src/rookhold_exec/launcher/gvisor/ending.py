"""How a workload ended, in the words of runsc's own log.

To a shell, runsc says the same of an exit with 143, of SIGTERM, and of a sandbox that was killed.
Its log has the wait status itself, and no byte in it is the job's.

At times the sandbox is gone before it has answered how its workload ended, and runsc takes the end
of that process instead. It ends as its workload did, except that of a signal it makes an exit code
as a shell does; if it was itself killed, or has left a panic, nothing is known of the workload.
"""

from __future__ import annotations

import os

_TOLD = b" Exiting with status: "
_NOT_ANSWERED = b"Wait RPC to container "
_LOG_MAX = 1 << 18


def ending(logs: str, panic: str) -> int | None:
    """Return the wait status of the workload; None if runsc did not learn of it."""
    try:
        [name] = [name for name in os.listdir(logs) if ".run" in name]
        with open(f"{logs}/{name}", "rb") as log:
            text = log.read(_LOG_MAX)
    except (OSError, ValueError):
        return None
    *earlier, last = text.rstrip(b"\n").split(b"\n")
    _, told, digits = last.rpartition(_TOLD)
    if not told or not digits.isdigit():
        return None
    status = int(digits)
    second_hand = any(_NOT_ANSWERED in line for line in earlier)
    if second_hand and (os.WIFSIGNALED(status) or _has_text(panic)):
        return None
    return status


def _has_text(path: str) -> bool:
    try:
        return os.stat(path).st_size > 0
    except FileNotFoundError:
        return False
