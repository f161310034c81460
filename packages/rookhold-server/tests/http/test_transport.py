"""The limits of a connection, on a real socket."""

import json
import logging
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from rookhold_server.config.address import Address
from rookhold_server.errors import AddressUnavailableError
from rookhold_server.http.transport import bind, connection
from rookhold_types.states import JobStatus

Start = Callable[..., Any]


def test_many_requests_share_one_connection(gateway: Any) -> None:
    peer = gateway.connect()
    for _ in range(50):
        peer.request("GET", "/healthz")
        assert peer.answer().body == b'{"ok":true}'


def test_pipelined_requests_are_answered_in_order(gateway: Any) -> None:
    peer = gateway.connect()
    peer.request("GET", "/healthz")
    peer.request("GET", "/v1/whoami")
    peer.request("GET", "/readyz")
    assert peer.answer().body == b'{"ok":true}'
    assert peer.answer().json["tenant"] == "a"
    assert peer.answer().status == 503  # nothing has probed the store here


def test_peers_beyond_the_limit_wait_and_are_served_when_one_leaves(start: Start) -> None:
    gateway = start(limits={"connections": 3})
    held = [gateway.connect() for _ in range(3)]
    for peer in held:
        peer.request("GET", "/healthz")
        assert peer.answer().status == 200
    waiting = gateway.connect()
    waiting.request("GET", "/healthz")
    assert not waiting.ended(0.3)  # in the backlog: neither answered nor refused
    assert gateway.server.connections == 3
    held[0].close()
    assert waiting.answer().status == 200


def test_a_head_that_never_ends_closes_the_connection(start: Start) -> None:
    gateway = start(limits={"head_seconds": 0.3})
    peer = gateway.connect()
    peer.send(b"GET /healthz HTTP/1.1\r\nhost: g")
    began = time.monotonic()
    assert peer.ended(5)
    assert 0.25 < time.monotonic() - began < 3


def test_trickling_a_head_does_not_extend_its_deadline(start: Start) -> None:
    gateway = start(limits={"head_seconds": 0.5})
    peer = gateway.connect()
    began = time.monotonic()
    with pytest.raises(OSError):  # noqa: PT012 - whichever byte meets the closed connection
        while time.monotonic() - began < 10:
            peer.send(b"x")
            time.sleep(0.05)
    assert time.monotonic() - began < 5


def test_a_later_head_has_the_same_deadline(start: Start) -> None:
    gateway = start(limits={"head_seconds": 1.0})
    peer = gateway.connect()
    time.sleep(0.5)
    peer.request("GET", "/healthz")
    assert peer.answer().status == 200
    began = time.monotonic()
    peer.send(b"GET /he")
    assert peer.ended(5)
    assert 0.8 < time.monotonic() - began < 5


def test_the_head_deadline_does_not_cut_a_slow_answer(start: Start) -> None:
    gateway = start(limits={"head_seconds": 0.2})
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    peer = gateway.connect()
    peer.request("GET", f"/v1/jobs/{job_id}/result?wait_seconds=1")
    assert peer.answer().status == 202


def test_a_peer_that_stops_reading_is_dropped(start: Start) -> None:
    gateway = start(limits={"write_seconds": 1.0})
    gateway.engine.stdout = "x" * 20_000_000
    job_id = gateway.engine.add("a")
    peer = gateway.connect(receive_buffer=4096)
    peer.request("GET", f"/v1/jobs/{job_id}/result")
    peer.head()
    assert gateway.services.pools.large_responses.used == 1
    assert gateway.eventually(lambda: gateway.services.pools.large_responses.used == 0)
    assert gateway.eventually(lambda: gateway.server.connections == 0)


def test_any_accepted_byte_restarts_the_write_deadline(start: Start) -> None:
    gateway = start(limits={"write_seconds": 1.0})
    gateway.engine.stdout = "x" * 6_000_000
    job_id = gateway.engine.add("a")
    peer = gateway.connect(receive_buffer=65536)
    peer.request("GET", f"/v1/jobs/{job_id}/result")
    _, headers = peer.head()
    left = int(dict(headers)["content-length"]) - len(peer.buffer)
    began = time.monotonic()
    while left:  # slow, and longer than the deadline in all
        piece = peer.socket.recv(min(left, 50_000))
        assert piece, "cut although it was reading"
        left -= len(piece)
        time.sleep(0.015)
    assert time.monotonic() - began > 1.2


def test_a_connection_ends_at_its_lifetime(start: Start) -> None:
    gateway = start(limits={"lifetime_seconds": 1.5})
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    peer = gateway.connect()
    peer.request("GET", f"/v1/jobs/{job_id}/result?wait_seconds=30")
    began = time.monotonic()
    assert peer.ended(5)
    assert 1.0 < time.monotonic() - began < 6
    assert gateway.eventually(lambda: gateway.services.pools.result_waits.used == 0)


def test_an_old_connection_says_close_before_it_is_cut(
    gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_RETIREMENT", 0.0)  # old from the start
    peer = gateway.connect()
    peer.request("GET", "/healthz")
    assert peer.answer().header("connection") == "close"
    assert peer.ended(1)


def test_no_interim_answer_before_the_handler_reads(gateway: Any) -> None:
    peer = gateway.connect()
    peer.request(
        "POST",
        "/v1/jobs",
        key=None,
        headers=(("expect", "100-continue"), ("content-length", "10")),
    )
    status, _ = peer.head()
    assert status == 401


def test_the_interim_answer_comes_when_the_handler_reads(gateway: Any) -> None:
    body = json.dumps({"language": "bash", "code": "true"}).encode()
    peer = gateway.connect()
    peer.request(
        "POST",
        "/v1/jobs",
        headers=(
            ("expect", "100-continue"),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
        ),
    )
    assert peer.head() == (100, [])
    peer.send(body)
    assert peer.answer().status == 201


def test_what_is_not_http_is_refused_in_the_envelope(gateway: Any) -> None:
    for text in (b"\x16\x03\x01 nonsense\r\n\r\n", b"GET / HTTP/2.0\r\nhost: g\r\n\r\n"):
        peer = gateway.connect()
        peer.send(text)
        answer = peer.answer()
        assert answer.status in {400, 505}
        assert answer.code == "malformed_request"
        assert answer.header("connection") == "close"
        assert peer.ended(1)


def test_prior_knowledge_http2_is_refused_on_a_plain_listener(gateway: Any) -> None:
    peer = gateway.connect()
    peer.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert peer.answer().status == 505


def test_an_h2c_upgrade_is_ignored(gateway: Any) -> None:
    peer = gateway.connect()
    peer.request(
        "GET",
        "/healthz",
        headers=(
            ("upgrade", "h2c"),
            ("connection", "upgrade, http2-settings"),
            ("http2-settings", ""),
        ),
    )
    assert peer.answer().status == 200
    peer.request("GET", "/healthz")
    assert peer.answer().status == 200


def test_a_head_that_is_too_large_is_refused(gateway: Any) -> None:
    peer = gateway.connect()
    peer.send(b"GET /healthz HTTP/1.1\r\nhost: g\r\nx: " + b"y" * 100_000)
    assert peer.answer().status == 431


def test_a_body_that_breaks_its_framing_is_refused(gateway: Any) -> None:
    peer = gateway.connect()
    peer.request(
        "POST",
        "/v1/jobs",
        headers=(("transfer-encoding", "chunked"), ("content-type", "application/json")),
    )
    peer.send(b"zz\r\n")
    answer = peer.answer()
    assert (answer.status, answer.code) == (400, "malformed_request")
    assert peer.ended(1)
    assert gateway.eventually(lambda: gateway.services.pools.other_bodies.used == 0)


@pytest.mark.parametrize(
    "head",
    [
        b"POST /v1/jobs HTTP/1.1\r\nhost: g\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n",
        b"GET /healthz HTTP/1.1\r\nhost: g\r\ntransfer-encoding: chunked\r\ncontent-length: 0\r\n",
        b"POST /v1/jobs HTTP/1.0\r\ntransfer-encoding: chunked\r\n",
    ],
)
def test_nothing_behind_a_body_with_two_lengths_is_taken_for_a_request(
    gateway: Any, head: bytes
) -> None:
    peer = gateway.connect()
    peer.send(head + b"\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\nhost: g\r\n\r\n")
    answer = peer.answer()
    assert (answer.status, answer.code) == (400, "malformed_request")
    assert answer.header("connection") == "close"
    assert peer.ended(1)  # the second request has no answer


def test_a_length_of_thousands_of_digits_is_refused(gateway: Any) -> None:
    peer = gateway.connect()
    peer.request("POST", "/v1/jobs", headers=(("content-length", "9" * 5000),))
    assert peer.answer().code == "malformed_request"


def test_a_target_in_absolute_form_reaches_its_route(gateway: Any) -> None:
    assert gateway.call("GET", "http://gateway/healthz").status == 200


def test_head_is_answered_like_get_without_the_body(gateway: Any) -> None:
    peer = gateway.connect()
    peer.request("HEAD", "/healthz")
    answer = peer.answer(without_body=True)
    assert (answer.status, answer.header("content-length")) == (200, "11")
    peer.request("GET", "/healthz")
    assert peer.answer().status == 200


def test_drain_lets_a_running_exchange_finish_and_closes_idle_ones(start: Start) -> None:
    gateway = start(limits={"drain_seconds": 20.0})
    gateway.engine.accepting = gateway.do(type(gateway.engine.accepting))
    idle, busy = gateway.connect(), gateway.connect()
    idle.request("GET", "/healthz")
    assert idle.answer().status == 200
    busy.request("POST", "/v1/jobs", body=b'{"language":"bash","code":"true"}')
    assert gateway.eventually(lambda: gateway.engine.accepts_begun == 1)
    gateway.do(gateway.server.stop)
    assert idle.ended(1)
    with pytest.raises(OSError):
        gateway.connect()
    gateway.do(gateway.engine.accepting.set)
    answer = busy.answer()
    assert (answer.status, answer.header("connection")) == (201, "close")
    assert busy.ended(1)


def test_drain_cuts_what_does_not_end(start: Start) -> None:
    gateway = start()
    gateway.engine.accepting = gateway.do(type(gateway.engine.accepting))
    peer = gateway.connect()
    peer.request("POST", "/v1/jobs", body=b'{"language":"bash","code":"true"}')
    assert gateway.eventually(lambda: gateway.engine.accepts_begun == 1)
    began = time.monotonic()
    gateway.do(gateway.server.stop)
    assert peer.ended(5)
    assert 0.8 < time.monotonic() - began < 4
    gateway.do(gateway.engine.accepting.set)


def test_an_address_in_use_is_refused(gateway: Any) -> None:
    with pytest.raises(AddressUnavailableError):
        bind(Address(*gateway.address))


def test_a_client_that_leaves_in_a_wait_frees_its_connection(gateway: Any) -> None:
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    peer = gateway.connect()
    peer.request("GET", f"/v1/jobs/{job_id}/result?wait_seconds=300")
    assert gateway.eventually(lambda: gateway.services.pools.result_waits.used == 1)
    peer.close()
    assert gateway.eventually(lambda: gateway.services.pools.result_waits.used == 0)
    assert gateway.eventually(lambda: gateway.server.connections == 0)


def test_a_reset_in_mid_commit_cancels_nothing(
    gateway: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gateway.engine.accepting = gateway.do(type(gateway.engine.accepting))
    peer = gateway.connect()
    peer.request("POST", "/v1/jobs", body=b'{"language":"bash","code":"true"}')
    assert gateway.eventually(lambda: gateway.engine.accepts_begun == 1)
    peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()
    time.sleep(0.1)
    gateway.do(gateway.engine.accepting.set)
    assert gateway.eventually(lambda: len(gateway.engine.jobs) == 1)
    assert gateway.eventually(lambda: gateway.server.connections == 0)
    assert [record.getMessage() for record in caplog.records] == []


def test_a_cut_reaches_a_wait_behind_which_another_request_queues(start: Start) -> None:
    gateway = start(limits={"lifetime_seconds": 1.5})
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    peer = gateway.connect()
    peer.request("GET", f"/v1/jobs/{job_id}/result?wait_seconds=300")
    peer.request("GET", "/healthz")
    assert gateway.eventually(lambda: gateway.services.pools.result_waits.used == 1)
    assert peer.ended(5)
    assert gateway.eventually(lambda: gateway.services.pools.result_waits.used == 0)


def test_clients_that_vanish_anywhere_leave_nothing_behind(gateway: Any) -> None:
    body = json.dumps({"language": "bash", "code": "true"}).encode()
    whole = (
        b"POST /v1/jobs HTTP/1.1\r\nhost: g\r\nauthorization: Bearer key-of-a-tenant-a\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    ) + body

    def vanish(cut: int) -> None:
        with socket.create_connection(gateway.address, 10) as peer:
            peer.sendall(whole[:cut])

    threads = [threading.Thread(target=vanish, args=(cut,)) for cut in range(0, len(whole), 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gateway.eventually(lambda: gateway.server.connections == 0)
    assert gateway.services.pools.small_bodies.used == 0
    assert gateway.call("GET", "/healthz").status == 200


def test_an_http_1_0_client_is_answered_and_closed(gateway: Any) -> None:
    peer = gateway.connect()
    peer.send(b"GET /healthz HTTP/1.0\r\n\r\n")
    answer = peer.answer()
    assert (answer.status, answer.body) == (200, b'{"ok":true}')
    assert peer.ended(1)


def test_a_listener_may_be_ipv6(start: Start) -> None:
    assert start(host="::1").call("GET", "/healthz").status == 200


def test_a_body_arriving_byte_by_byte_is_read(gateway: Any) -> None:
    body = json.dumps({"language": "bash", "code": "true"}).encode()
    peer = gateway.connect()
    headers = (("content-length", str(len(body))), ("content-type", "application/json"))
    peer.request("POST", "/v1/jobs", headers=headers)
    for byte in body:
        peer.send(bytes([byte]))
        time.sleep(0.001)
    assert peer.answer().status == 201


def test_mutilated_requests_never_break_the_server(
    gateway: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source = random.Random(7)
    body = json.dumps({"language": "bash", "code": "true"}).encode()
    good = (
        b"POST /v1/jobs HTTP/1.1\r\nhost: g\r\nauthorization: Bearer key-of-a-tenant-a\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        b"GET /v1/jobs?limit=1 HTTP/1.1\r\nhost: g\r\n"
        b"authorization: Bearer key-of-a-tenant-a\r\n\r\n" % (len(body), body)
    )
    with caplog.at_level(logging.WARNING):
        for _ in range(300):
            text = bytearray(good)
            for _ in range(source.randint(1, 6)):
                at = source.randrange(len(text))
                match source.randrange(3):
                    case 0:
                        text[at] = source.randrange(256)
                    case 1:
                        del text[at : at + source.randint(1, 20)]
                    case _:
                        text[at:at] = source.choice([b"\r\n", b"\0", b":", b"\xff", b" ", b"0" * 9])
            with socket.create_connection(gateway.address, 10) as peer:
                peer.sendall(text)
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(65536):
                    pass
    assert gateway.eventually(lambda: gateway.server.connections == 0)
    assert [record.getMessage() for record in caplog.records] == []
    assert gateway.call("GET", "/healthz").status == 200


def test_an_application_that_ends_without_an_answer_is_answered_for(gateway: Any) -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        del scope, receive, send

    gateway.server._app.app = silent
    peer = gateway.connect()
    peer.request("GET", "/healthz")
    answer = peer.answer()
    assert (answer.status, answer.code) == (500, "internal_error")
    assert answer.header("connection") == "close"
    assert peer.ended(1)
