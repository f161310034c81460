"""Every exit status of the command, in one table."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rookhold import RookholdError


class Exit(IntEnum):
    """What the command ends with when it is not the job's own exit code.

    A reader that leaves (`| head`) changes none of it: every command goes on to its end, silently,
    and ends with what it would have ended with. `check | head -1` still tells a host that works
    from one that does not, and `run | head` still keeps the evidence.
    """

    OK = 0
    PROBLEM = 1  # check or rootfs found something that does not work
    USAGE = 64
    BAD_EVIDENCE = 65
    UNREACHABLE = 69
    FILES = 74  # a file of this computer cannot be read or written
    REFUSED = 77
    WALL_LIMIT = 124
    LIMIT = 125  # any other limit, a cancelled job, or an error of the gateway's making
    INTERRUPTED = 130
    MEMORY_LIMIT = 137
    TERMINATED = 143


_BY_STATUS: Final = {
    "succeeded": Exit.OK,
    "timed_out": Exit.WALL_LIMIT,
    "oom_killed": Exit.MEMORY_LIMIT,
    "cancelled": Exit.LIMIT,
    "error": Exit.LIMIT,
}
_SIGNAL: Final = "signal-"


def of_job(status: str, exit_code: int | None, killed_by: str | None) -> int:
    """Return the job's own exit code if it ended by itself, else what the table says.

    A job that died of a signal ended by itself: 128 and the signal's number, as shells say it.
    """
    if (known := _BY_STATUS.get(status)) is not None:
        return known
    if killed_by is not None and killed_by.startswith(_SIGNAL):
        number = killed_by.removeprefix(_SIGNAL)
        return 128 + int(number) if number.isascii() and number.isdigit() else Exit.LIMIT
    if killed_by is not None or exit_code is None:
        return Exit.LIMIT
    return exit_code


def of_error(error: RookholdError) -> Exit:
    """Return the status for an error of the client."""
    from rookhold import errors

    if isinstance(error, errors.IntegrityError):
        return Exit.BAD_EVIDENCE
    if isinstance(error, errors.ConfigurationError):
        return Exit.USAGE
    if isinstance(error, errors.ApiError) and not isinstance(error, errors.ServerError):
        return Exit.REFUSED
    return Exit.UNREACHABLE
