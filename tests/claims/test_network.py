"""What a job can reach of any network: nothing."""

from __future__ import annotations

import json
import secrets
import select
import socket
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from claims.backends import NAMESPACES, on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from claims.jobs import Jobs

REACH = """
import json, socket
reached = []
for family, kind, address in json.loads(input()):
    with socket.socket(family, kind) as made:
        made.settimeout(5)
        try:
            made.connect(address if isinstance(address, str) else tuple(address))
            made.send(b"hello\\n\\n")
            reached.append([family, kind, made.recv(5).decode()])
        except OSError:
            pass
print(json.dumps(reached))
"""
FAMILIES = """
import json, socket
made = []
for family in range(46):
    for kind in (1, 2, 3, 4, 5, 10):
        try:
            socket.socket(family, kind, 0).close()
        except OSError:
            continue
        made.append([family, kind])
print(json.dumps(made))
"""
ORDINARY = [[1, 1], [1, 2], [1, 5], [2, 1], [2, 2], [10, 1], [10, 2]]


@contextmanager
def services_of_the_host() -> Iterator[list[tuple[int, int, object]]]:
    """Answer on the host's loopback and on an abstract socket, as its own services would."""
    wanted: list[tuple[int, int, object]] = [
        (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
        (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        (socket.AF_UNIX, socket.SOCK_STREAM, f"\0claims-{secrets.token_hex(8)}"),
    ]
    over = threading.Event()
    with ExitStack() as stack:
        opened = [stack.enter_context(socket.socket(family, kind)) for family, kind, _ in wanted]
        for listening, (_, kind, address) in zip(opened, wanted, strict=True):
            listening.bind(address)
            if kind == socket.SOCK_STREAM:
                listening.listen()
        answering = threading.Thread(target=answer, args=(opened, over))
        answering.start()
        try:
            yield [(s.family, s.type, _text(s.getsockname())) for s in opened]
        finally:
            over.set()
            answering.join(30)


def _text(address: object) -> object:
    return address.decode() if isinstance(address, bytes) else address


def answer(opened: list[socket.socket], over: threading.Event) -> None:
    while not over.is_set():
        for ready in select.select(opened, [], [], 0.05)[0]:
            if ready.type == socket.SOCK_DGRAM:
                _, peer = ready.recvfrom(16)
                ready.sendto(b"heard", peer)
            else:
                with ready.accept()[0] as peer:
                    peer.sendall(b"heard")


def check_reach(jobs: Jobs) -> None:
    """The gateway itself is one of the services."""
    host, _, port = jobs.gateway.address.rpartition(":")
    gateway = (socket.AF_INET, socket.SOCK_STREAM, (host, int(port)))
    with services_of_the_host() as services:
        services.append(gateway)
        reached = jobs.ask(REACH, stdin=json.dumps(services))
    assert reached == [], "a service of the host was reached"


def check_families(jobs: Jobs) -> None:
    made = jobs.ask(FAMILIES)
    assert [each for each in made if each not in ORDINARY] == [], "a socket was made"


def test_no_network(confined: Jobs) -> None:
    check_reach(confined)


def test_no_network_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="a service of the host was reached"):
        check_reach(weakened.without("network-namespace", "no-network"))


@on(*NAMESPACES)
def test_ordinary_sockets_only(confined: Jobs) -> None:
    check_families(confined)


@on(*NAMESPACES)
def test_ordinary_sockets_only_sabotaged(weakened: Jobs) -> None:
    with pytest.raises(AssertionError, match="a socket was made"):
        check_families(weakened.without("seccomp"))
