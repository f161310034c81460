"""What a server gets from the supervisor that started it."""

from __future__ import annotations

import os
import socket
from typing import Any, Final, NamedTuple

from rookhold_exec.launcher.protocol import MESSAGE_MAX, ProtocolError, decode
from rookhold_exec.launcher.spawner import RemoteSpawner
from rookhold_exec.launcher.spawning import FDS, GRANT, descriptors
from rookhold_server.errors import SupervisorLostError

_SECONDS: Final = 10.0


class Grant(NamedTuple):
    """The listener that root bound, the backend it chose, and the way to launchers of it."""

    listener: socket.socket
    backend: str
    surveyed: dict[str, Any] | None
    spawner: RemoteSpawner


def receive(descriptor: int) -> Grant:
    """Take it from the supervisor, who has sent it already. Raises SupervisorLostError."""
    try:
        supervisor = socket.socket(fileno=descriptor)
    except OSError as error:
        raise SupervisorLostError("ROOKHOLD_SUPERVISOR_FD is no socket") from error
    fds: list[int] = []
    try:
        supervisor.set_inheritable(False)
        supervisor.settimeout(_SECONDS)
        data, ancillary, _, _ = supervisor.recvmsg(
            MESSAGE_MAX, socket.CMSG_SPACE(4 * FDS), socket.MSG_CMSG_CLOEXEC
        )
        fds += descriptors(ancillary)
        message = decode(data)
        if message["op"] != GRANT or len(fds) != 1:
            raise ProtocolError("not a grant")
        backend, surveyed = message["backend"], message["surveyed"]
    except (OSError, ProtocolError, KeyError, TypeError) as error:
        for fd in fds:
            os.close(fd)
        supervisor.close()
        raise SupervisorLostError("the root supervisor did not say what to serve") from error
    listener = socket.socket(fileno=fds[0])
    listener.setblocking(False)
    return Grant(listener, backend, surveyed, RemoteSpawner(supervisor))
