"""What a server gets from the supervisor that started it."""

from __future__ import annotations

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
    supervisor = socket.socket(fileno=descriptor)
    try:
        supervisor.set_inheritable(False)
        supervisor.settimeout(_SECONDS)
        data, ancillary, _, _ = supervisor.recvmsg(
            MESSAGE_MAX, socket.CMSG_SPACE(4 * FDS), socket.MSG_CMSG_CLOEXEC
        )
        message = decode(data)
        [listener] = descriptors(ancillary)
        if message["op"] != GRANT:
            raise ProtocolError("not a grant")
    except (OSError, ProtocolError, ValueError, KeyError, TypeError) as error:
        supervisor.close()
        raise SupervisorLostError("the root supervisor did not say what to serve") from error
    bound = socket.socket(fileno=listener)
    bound.setblocking(False)
    return Grant(bound, message["backend"], message["surveyed"], RemoteSpawner(supervisor))
