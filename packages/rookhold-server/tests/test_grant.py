"""What a server accepts from the root process that started it."""

import os
import socket

import pytest

from rookhold_exec.launcher.protocol import encode
from rookhold_exec.launcher.spawning import GRANT, LAUNCH
from rookhold_server.errors import SupervisorLostError
from rookhold_server.supervisor.grant import receive

GOOD = {"op": GRANT, "backend": "namespaces-dev", "surveyed": {"note": "", "found": {}}}


def sent(message: object, *, listeners: int = 1) -> int:
    """Return the server's end of a socket on which the message waits."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, socket.create_server(("127.0.0.1", 0)) as listener:
        data = message if isinstance(message, bytes) else encode(message)
        socket.send_fds(ours, [data], [listener.fileno()] * listeners)
        return theirs.detach()


def test_a_grant_brings_listener_backend_and_the_way_to_launchers() -> None:
    grant = receive(sent(GOOD))
    grant.spawner.close()
    with grant.listener:
        assert grant.listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        assert not grant.listener.get_inheritable()
    assert (grant.backend, grant.surveyed) == ("namespaces-dev", GOOD["surveyed"])


@pytest.mark.parametrize(
    ("message", "listeners"),
    [
        (GOOD, 0),
        (GOOD, 2),
        ({**GOOD, "op": LAUNCH}, 1),
        ({"op": GRANT}, 1),
        ([], 1),
        (None, 1),
        (b"rubbish", 1),
    ],
)
def test_anything_else_is_no_grant(message: object, listeners: int) -> None:
    with pytest.raises(SupervisorLostError):
        receive(sent(message, listeners=listeners))


def test_a_supervisor_that_has_gone_is_told() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.close()
    with pytest.raises(SupervisorLostError):
        receive(theirs.detach())


def test_a_descriptor_that_is_no_socket_is_told() -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    try:
        with pytest.raises(SupervisorLostError):
            receive(null)
    finally:
        os.close(null)
