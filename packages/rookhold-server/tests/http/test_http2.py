"""HTTP/2 on a real socket: pace, limits, and what a peer cannot make the server do."""

import json
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest
from h2.errors import ErrorCodes
from http2_peer import frame

from rookhold_server.http.transport import connection
from rookhold_types.states import JobStatus

Secure = Callable[..., Any]
KEY = "key-of-a-tenant-a"
JSON_TYPE = (("content-type", "application/json"),)
SPEC = json.dumps({"language": "bash", "code": "true"}).encode()


def test_one_connection_answers_many_requests_at_once(secure: Secure) -> None:
    gateway = secure()
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    peer = gateway.http2()
    waiting = peer.request("GET", f"/v1/jobs/{job_id}/result?wait_seconds=60", key=KEY)
    streams = [peer.request("GET", "/v1/whoami", key=KEY) for _ in range(40)]
    assert {peer.answer(stream).json["tenant"] for stream in streams} == {"a"}
    assert peer.call("POST", "/v1/jobs", key=KEY, body=SPEC).status == 201
    gateway.do(gateway.engine.begin_shutdown)
    assert peer.answer(waiting).code == "shutting_down"


def test_a_request_that_is_taken_back_in_its_body_frees_its_place(secure: Secure) -> None:
    gateway = secure()
    peer = gateway.http2()
    stream = peer.request("POST", "/v1/jobs", key=KEY, body=b" " * 1000, end=False)
    assert gateway.eventually(lambda: gateway.services.pools.small_bodies.used == 1)
    assert peer.call("GET", "/healthz").status == 200
    peer.machine.reset_stream(stream)
    peer.flush()
    assert gateway.eventually(lambda: gateway.services.pools.small_bodies.used == 0)


def test_a_large_body_and_a_large_answer_get_through(secure: Secure) -> None:
    gateway = secure()
    gateway.engine.stdout = "x" * 3_000_000
    peer = gateway.http2()
    body = json.dumps({"language": "bash", "code": "#" * 900_000}).encode()
    stream = peer.request("POST", "/v1/jobs", key=KEY, end=False, headers=JSON_TYPE)
    left = memoryview(body)
    while left:
        room = min(peer.machine.local_flow_control_window(stream), 16_384, len(left))
        if room:
            peer.machine.send_data(stream, bytes(left[:room]), end_stream=room == len(left))
            left = left[room:]
            peer.flush()
        else:
            assert peer.step()
    assert peer.answer(stream).status == 201
    job_id = gateway.engine.add("a")
    answer = peer.call("GET", f"/v1/jobs/{job_id}/result", key=KEY)
    assert answer.header("content-length") == str(len(answer.body))
    assert len(answer.json["stdout"]) == 3_000_000


def test_an_answer_before_the_body_says_that_the_rest_is_not_wanted(secure: Secure) -> None:
    peer = secure().http2()
    stream = peer.request("POST", "/v1/jobs", body=b"x" * 5000, end=False)
    assert peer.answer(stream).code == "missing_api_key"
    assert peer.until_reset(stream) == ErrorCodes.NO_ERROR
    assert peer.call("GET", "/healthz").status == 200


def test_windows_of_bodies_that_nobody_read_come_back(secure: Secure) -> None:
    """Each of these leaves 50 kB unread; together they are more than the connection's window."""
    peer = secure().http2()
    for _ in range(30):
        stream = peer.request("POST", "/v1/jobs", body=b"x" * 50_000)
        assert peer.answer(stream).status == 401


def test_the_interim_answer_comes_when_the_handler_reads(secure: Secure) -> None:
    peer = secure().http2()
    expect = (("expect", "100-continue"), ("content-length", str(len(SPEC))), *JSON_TYPE)
    refused = peer.request("POST", "/v1/jobs", headers=expect, end=False)
    assert peer.answer(refused).status == 401
    assert peer.interim == []
    stream = peer.request("POST", "/v1/jobs", key=KEY, headers=expect, end=False)
    while not peer.interim:
        assert peer.step()
    assert peer.interim == [100]
    peer.machine.send_data(stream, SPEC, end_stream=True)
    peer.flush()
    assert peer.answer(stream).status == 201


def test_head_has_no_body(secure: Secure) -> None:
    answer = secure().http2().call("HEAD", "/healthz")
    assert (answer.status, answer.header("content-length"), answer.body) == (200, "11", b"")


def test_a_websocket_is_not_opened_over_http2(secure: Secure) -> None:
    gateway = secure()
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    answer = gateway.http2().call("GET", f"/v1/jobs/{job_id}/stream", key=KEY)
    assert (answer.status, answer.code) == (426, "upgrade_required")
    assert answer.header("upgrade") is None


@pytest.mark.parametrize("path", ["no-slash\x7f", "/\xe9", "", "/a b"])
def test_a_path_that_is_none_is_refused(secure: Secure, path: str) -> None:
    """Either in the envelope, or by h2 itself, which then ends the connection."""
    peer = secure().http2()
    peer.machine.config.validate_outbound_headers = False
    stream = peer.request("GET", path)
    while stream not in peer.ended and peer.step():
        pass
    if stream in peer.ended:
        answer = peer.answer(stream)
        assert (answer.status, answer.code) == (400, "malformed_request")
    else:
        assert peer.goaway == ErrorCodes.PROTOCOL_ERROR


@pytest.mark.parametrize("length", ["1_0", "+5", "-1", "9" * 30])
def test_a_length_that_is_none_is_refused(secure: Secure, length: str) -> None:
    peer = secure().http2()
    fields = (("content-length", length), *JSON_TYPE)
    stream = peer.request("POST", "/v1/jobs", key=KEY, headers=fields, end=False)
    while stream not in peer.ended and peer.step():
        pass
    if stream in peer.ended:
        assert peer.answer(stream).code == "malformed_request"
    else:
        assert peer.goaway == ErrorCodes.PROTOCOL_ERROR


def test_a_head_that_is_too_large_is_answered_and_one_far_too_large_cut(secure: Secure) -> None:
    gateway = secure()
    peer = gateway.http2()
    answer = peer.call("GET", "/healthz", headers=(("x", "y" * 1000),) * 70)
    assert (answer.status, answer.code) == (431, "malformed_request")
    assert peer.call("GET", "/healthz").status == 200
    peer.request("GET", "/healthz", headers=(("x", "y" * 1000),) * 300)  # a few hundred bytes
    assert peer.until_closed() == ErrorCodes.ENHANCE_YOUR_CALM


def test_requests_that_are_taken_back_at_once_are_cut_off(
    secure: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    """The rapid reset of CVE-2023-44487: never more at work than was agreed, and not for long."""
    gateway = secure()
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    peer = gateway.http2()
    with caplog.at_level(logging.WARNING):
        for _ in range(400):
            stream = peer.machine.get_next_available_stream_id()
            peer.machine.send_headers(
                stream,
                [
                    (":method", "GET"),
                    (":scheme", "https"),
                    (":authority", "g"),
                    (":path", f"/v1/jobs/{job_id}/result?wait_seconds=60"),
                    ("authorization", f"Bearer {KEY}"),
                ],
                end_stream=True,
            )
            peer.machine.reset_stream(stream)
        try:
            peer.flush()
        except OSError:
            return
        assert peer.until_closed() in {ErrorCodes.ENHANCE_YOUR_CALM, None}
    assert gateway.eventually(lambda: gateway.server.connections == 0)
    assert gateway.services.pools.result_waits.used == 0
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize(
    "flood",
    [
        frame(6, payload=b"12345678"),  # ping
        frame(4),  # settings
        frame(4, payload=b"\x00\x01\xff\xff\xff\xff" * 100),  # settings, of which each counts
        frame(2, stream_id=99, payload=b"\0\0\0\0\7"),  # priority
        frame(8, payload=b"\0\0\0\1"),  # a window, byte by byte
        frame(250),  # a kind that nobody knows
    ],
    ids=["ping", "settings", "table", "priority", "window", "unknown"],
)
def test_frames_that_carry_nothing_are_cut_off(secure: Secure, flood: bytes) -> None:
    gateway = secure()
    peer = gateway.http2()
    assert peer.call("GET", "/healthz").status == 200
    try:
        for _ in range(40):
            peer.raw(flood * 50)
        assert peer.until_closed() in {ErrorCodes.ENHANCE_YOUR_CALM, None}
    except OSError:
        assert gateway.eventually(lambda: gateway.server.connections == 0)
    assert gateway.eventually(lambda: gateway.server.connections == 0)


def test_a_head_of_endless_frames_is_cut_off(secure: Secure) -> None:
    gateway = secure()
    peer = gateway.http2()
    try:
        peer.raw(frame(1, flags=1, stream_id=1, payload=b"\x82"))
        for _ in range(200):
            peer.raw(frame(9, stream_id=1, payload=b"\0" * 100))
        assert peer.until_closed() in {ErrorCodes.PROTOCOL_ERROR, ErrorCodes.ENHANCE_YOUR_CALM}
    except OSError:
        assert gateway.eventually(lambda: gateway.server.connections == 0)


def test_a_head_that_never_ends_closes_the_connection_even_beside_a_running_request(
    secure: Secure,
) -> None:
    gateway = secure(limits={"head_seconds": 1.0})
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    peer = gateway.http2()
    peer.request("GET", f"/v1/jobs/{job_id}/result?wait_seconds=60", key=KEY)
    assert gateway.eventually(lambda: gateway.services.pools.result_waits.used == 1)
    time.sleep(1.5)  # a request at work has no deadline of a head
    assert gateway.services.pools.result_waits.used == 1
    peer.raw(frame(1, flags=1, stream_id=3, payload=b"\x82"))
    assert gateway.eventually(lambda: gateway.server.connections == 0)
    assert gateway.services.pools.result_waits.used == 0


def test_a_connection_on_which_nothing_is_asked_is_told_goodbye(secure: Secure) -> None:
    gateway = secure(limits={"head_seconds": 0.5})
    peer = gateway.http2()
    assert peer.call("GET", "/healthz").status == 200
    assert peer.until_closed() == ErrorCodes.NO_ERROR


def test_an_answer_without_room_for_it_is_given_up(secure: Secure) -> None:
    gateway = secure(limits={"write_seconds": 1.0})
    gateway.engine.stdout = "x" * 1_000_000
    job_id = gateway.engine.add("a")
    peer = gateway.http2()
    peer.reading = False  # keeps reading the socket, but gives no window back
    stream = peer.request("GET", f"/v1/jobs/{job_id}/result", key=KEY)
    assert peer.until_reset(stream) == ErrorCodes.INTERNAL_ERROR
    assert gateway.services.pools.large_responses.used == 0


def test_an_old_connection_takes_no_more_requests_and_ends_after_the_last(
    secure: Secure, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = secure(limits={"write_seconds": 2.0})
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    peer = gateway.http2()
    waiting = peer.request("GET", f"/v1/jobs/{job_id}/result?wait_seconds=60", key=KEY)
    assert gateway.eventually(lambda: gateway.services.pools.result_waits.used == 1)
    monkeypatch.setattr(connection, "_RETIREMENT", 0.0)
    while peer.goaway is None:
        assert peer.step()
    assert waiting not in peer.ended
    gateway.do(gateway.engine.begin_shutdown)
    peer.goaway = None
    peer.until_closed()
    assert gateway.eventually(lambda: gateway.server.connections == 0)


def test_drain_says_goodbye_and_lets_running_requests_finish(secure: Secure) -> None:
    gateway = secure(limits={"drain_seconds": 20.0})
    gateway.engine.accepting = gateway.do(type(gateway.engine.accepting))
    idle, busy = gateway.http2(), gateway.http2()
    assert idle.call("GET", "/healthz").status == 200
    busy.request("POST", "/v1/jobs", key=KEY, body=SPEC)
    assert gateway.eventually(lambda: gateway.engine.accepts_begun == 1)
    gateway.do(gateway.server.stop)
    assert idle.until_closed() == ErrorCodes.NO_ERROR
    assert gateway.eventually(lambda: gateway.server.connections == 1)
    gateway.do(gateway.engine.accepting.set)
    busy.until_closed()
    assert len(gateway.engine.jobs) == 1


def test_a_client_that_leaves_in_mid_commit_cancels_nothing(
    secure: Secure, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = secure()
    gateway.engine.accepting = gateway.do(type(gateway.engine.accepting))
    peer = gateway.http2()
    stream = peer.request("POST", "/v1/jobs", key=KEY, body=SPEC)
    assert gateway.eventually(lambda: gateway.engine.accepts_begun == 1)
    peer.machine.reset_stream(stream)
    peer.flush()
    peer.close()
    gateway.do(gateway.engine.accepting.set)
    assert gateway.eventually(lambda: len(gateway.engine.jobs) == 1)
    assert gateway.eventually(lambda: gateway.server.connections == 0)
    assert [record.getMessage() for record in caplog.records] == []
