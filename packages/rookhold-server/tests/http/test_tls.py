"""TLS on the listener: the same limits as without, and what a peer without TLS is told."""

import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import pytest
from certificates import trusting

from rookhold_types.states import JobStatus

Secure = Callable[..., Any]
PROTOCOLS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


def wrap(gateway: Any, *protocols: str, **options: Any) -> Any:
    """Turn a new connection of the gateway into one that speaks HTTP/1 over TLS."""
    peer = gateway.connect(**options)
    context = trusting(gateway.trust, *protocols)
    peer.socket = context.wrap_socket(
        peer.socket, server_hostname="127.0.0.1", suppress_ragged_eofs=False
    )
    return peer


@pytest.mark.parametrize("version", PROTOCOLS)
def test_both_good_versions_are_spoken(secure: Secure, version: ssl.TLSVersion) -> None:
    gateway = secure()
    context = trusting(gateway.trust, "http/1.1")
    context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection(gateway.address, 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as peer,
    ):
        assert peer.selected_alpn_protocol() == "http/1.1"
        peer.sendall(b"GET /healthz HTTP/1.1\r\nhost: g\r\n\r\n")
        assert peer.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
def test_an_old_version_is_not_spoken(secure: Secure) -> None:
    gateway = secure()
    context = trusting(gateway.trust)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with socket.create_connection(gateway.address, 10) as plain, pytest.raises(OSError):
        context.wrap_socket(plain, server_hostname="127.0.0.1")


def test_a_client_without_a_choice_of_protocol_gets_http_1(secure: Secure) -> None:
    peer = wrap(secure())
    for _ in range(3):
        peer.request("GET", "/v1/whoami")
        assert peer.answer().json["tenant"] == "a"


def test_plain_http_is_told_what_is_spoken_here(secure: Secure) -> None:
    peer = secure().connect()
    peer.request("GET", "/healthz")
    answer = peer.answer()
    assert (answer.status, answer.code) == (400, "malformed_request")
    assert "HTTPS" in answer.json["error"]["message"]
    assert answer.header("connection") == "close"
    assert peer.ended(1)


def test_a_handshake_has_the_deadline_of_a_head(secure: Secure) -> None:
    gateway = secure(limits={"head_seconds": 0.5})
    peer = gateway.connect()
    peer.send(b"\x16\x03\x01\x02\x00\x01")
    began = time.monotonic()
    assert peer.ended(5)
    assert 0.4 < time.monotonic() - began < 4
    silent = gateway.connect()
    assert silent.ended(5)


@pytest.mark.parametrize("noise", [b"\x16\x03\x01\xff\xff" + b"x" * 70_000, b"\x16", b"\x16" * 300])
def test_noise_in_place_of_a_handshake_ends_the_connection(secure: Secure, noise: bytes) -> None:
    gateway = secure(limits={"head_seconds": 1.0})
    peer = gateway.connect()
    peer.send(noise)
    assert gateway.eventually(lambda: gateway.server.connections == 0)


def test_noise_after_the_handshake_ends_the_connection(secure: Secure) -> None:
    gateway = secure()
    peer = wrap(gateway)
    peer.request("GET", "/healthz")
    assert peer.answer().status == 200
    raw = socket.socket(fileno=peer.socket.detach())
    peer.socket = raw
    raw.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
    assert gateway.eventually(lambda: gateway.server.connections == 0)


def test_a_large_answer_gets_through_to_a_slow_reader(secure: Secure) -> None:
    gateway = secure(limits={"write_seconds": 1.0})
    gateway.engine.stdout = "x" * 4_000_000
    job_id = gateway.engine.add("a")
    peer = wrap(gateway, receive_buffer=65_536)
    peer.request("GET", f"/v1/jobs/{job_id}/result")
    _, headers = peer.head()
    left = int(dict(headers)["content-length"]) - len(peer.buffer)
    began = time.monotonic()
    while left:
        piece = peer.socket.recv(min(left, 16_384))
        assert piece, "cut although it was reading"
        left -= len(piece)
        time.sleep(0.005)
    assert time.monotonic() - began > 1.1


def test_a_peer_that_stops_reading_is_dropped(secure: Secure) -> None:
    gateway = secure(limits={"write_seconds": 1.0})
    gateway.engine.stdout = "x" * 20_000_000
    job_id = gateway.engine.add("a")
    peer = wrap(gateway, receive_buffer=4096)
    peer.request("GET", f"/v1/jobs/{job_id}/result")
    peer.head()
    assert gateway.services.pools.large_responses.used == 1
    assert gateway.eventually(lambda: gateway.services.pools.large_responses.used == 0)
    assert gateway.eventually(lambda: gateway.server.connections == 0)


def test_an_answer_that_closes_ends_with_a_close_of_tls_too(secure: Secure) -> None:
    """Without it a client cannot tell the end of the connection from one that was cut."""
    peer = wrap(secure())
    peer.request("POST", "/v1/jobs", key=None, headers=(("content-length", "10"),))
    assert peer.answer().header("connection") == "close"
    assert peer.socket.recv(1) == b""  # raises, were there no close of TLS before it


def test_a_client_that_leaves_in_a_wait_frees_its_connection(secure: Secure) -> None:
    gateway = secure()
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    peer = wrap(gateway)
    peer.request("GET", f"/v1/jobs/{job_id}/result?wait_seconds=300")
    assert gateway.eventually(lambda: gateway.services.pools.result_waits.used == 1)
    peer.close()
    assert gateway.eventually(lambda: gateway.services.pools.result_waits.used == 0)
    assert gateway.eventually(lambda: gateway.server.connections == 0)


def test_a_body_arriving_in_pieces_is_read(secure: Secure) -> None:
    peer = wrap(secure())
    body = b'{"language":"bash","code":"%b"}' % (b"#" * 200_000)
    headers = (("content-length", str(len(body))), ("content-type", "application/json"))
    peer.request("POST", "/v1/jobs", headers=headers)
    for at in range(0, len(body), 7000):
        peer.send(body[at : at + 7000])
    assert peer.answer().status == 201
