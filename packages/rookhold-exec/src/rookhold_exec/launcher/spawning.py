"""What a launcher is started as, and how a server asks a root supervisor for one.

One SOCK_SEQPACKET message a turn, in the launcher protocol's own encoding. The server asks for a
launcher, and may have the one it was given killed; it cannot say anything about what is started.
Standard library only: the supervisor imports this and little else.
"""

from __future__ import annotations

from _socket import SCM_RIGHTS, SOL_SOCKET

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = __file__.rpartition("/")[0] + "/__main__.py"
OPTIONS = ("-I", "-S")  # of the interpreter that runs it
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
SOCKET_FD = 3

GRANT = "grant"  # supervisor -> server, once and first: what root has found; with the listener
LAUNCH = "launch"  # server -> supervisor: a launcher, please; there is at most one at a time
LAUNCHED = "launched"  # supervisor -> server: its pid; with its socket and its process descriptor
REFUSED = "refused"  # supervisor -> server: no launcher; errno
KILL = "kill"  # server -> supervisor: end the launcher of this pid for certain
FDS = 2  # that come with a message, at most


def descriptors(ancillary: Sequence[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors that came with a message."""
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == SOL_SOCKET and kind == SCM_RIGHTS:
            whole = len(data) - len(data) % 4
            fds += [int.from_bytes(data[at : at + 4], "little") for at in range(0, whole, 4)]
    return fds
