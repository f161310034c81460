"""Why the command stops, each with the exit status it stops with."""

from __future__ import annotations

from typing import ClassVar

from .exits import Exit


class CommandError(Exception):
    """Root of what a command refuses by itself; the message is one line for the user."""

    exit: ClassVar[Exit] = Exit.USAGE


class UsageError(CommandError):
    """The command was called in a way that cannot work."""

    exit = Exit.USAGE


class MissingExtraError(CommandError):
    """A part that is installed as an extra is not there."""

    exit = Exit.USAGE

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'rookhold-cli[{extra}]'")


class RefusedError(CommandError):
    """A gateway would refuse this, so none was asked."""

    exit = Exit.REFUSED


class FilesError(CommandError):
    """A file or folder of this computer cannot be read or written."""

    exit = Exit.FILES


class GatewayStartError(CommandError):
    """The gateway that this command wanted to start did not come up."""

    exit = Exit.UNREACHABLE


class BadEvidenceError(CommandError):
    """The evidence does not hold."""

    exit = Exit.BAD_EVIDENCE


class TerminatedError(BaseException):
    """SIGTERM or SIGHUP arrived; a sibling of KeyboardInterrupt, so that cleanup runs."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
