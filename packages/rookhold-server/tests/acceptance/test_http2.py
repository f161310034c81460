"""HTTP/2: the line of the acceptance list about it, against a real server with a certificate."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from certificates import made, trusting
from gateway import Gateway
from http2_peer import Http2Peer

from rookhold_server.http.app import ROUTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPEC = {"language": "bash", "code": "echo over-http2"}
OF_A_CONNECTION = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Path]]:
    place = tmp_path_factory.mktemp("http2")
    certificate, key = made(place)
    settings = {"ROOKHOLD_TLS_CERT_FILE": str(certificate), "ROOKHOLD_TLS_KEY_FILE": str(key)}
    with Gateway(place / "home", sandbox="off", ROOKHOLD_RATE_PER_MIN="1000000", **settings) as it:
        yield it, certificate


@pytest.fixture
def peer(served: tuple[Gateway, Path]) -> Iterator[Http2Peer]:
    host, _, port = served[0].address.rpartition(":")
    with closing(Http2Peer((host, int(port)), trusting(served[1], "h2"))) as peer:
        yield peer


def test_h6_no_answer_over_http2_has_a_connection_header(
    peer: Http2Peer, served: tuple[Gateway, Path]
) -> None:
    """Every route and method, with and without a credential, with and without a body."""
    key = served[0].api_key
    answers = []
    for path, methods in ROUTES.items():
        url = path.replace("{job_id}", "019340f2-0000-7000-8000-000000000000")
        answers.append(peer.call("PATCH", url))
        for method in methods:
            answers.append(peer.call(method, url))
            answers.append(peer.call(method, url, key=key))
            answers.append(peer.call(method, url, key=key, body=b"x" * 20_000))
    answers.append(peer.call("GET", "/v1/whoami", key="wrong"))
    unread = peer.request("POST", "/v1/jobs", body=b"x" * 1000, end=False)
    answers.append(peer.answer(unread))  # in HTTP/1 this one says close
    answers.append(peer.call("GET", "/nowhere"))
    answers.append(peer.call("GET", "/healthz", headers=(("x", "y" * 1000),) * 70))
    assert {answer.status for answer in answers} >= {200, 400, 401, 404, 405, 426, 431}
    for answer in answers:
        assert not OF_A_CONNECTION & {name for name, _ in answer.headers}, answer
        assert answer.header("x-request-id")
        assert answer.status < 500


def test_a_job_is_submitted_and_followed_over_http2(
    peer: Http2Peer, served: tuple[Gateway, Path]
) -> None:
    key = served[0].api_key
    submitted = peer.call("POST", "/v1/jobs", key=key, body=json.dumps(SPEC).encode())
    assert submitted.status == 201
    job = submitted.json["job_id"]
    events = peer.request("GET", f"/v1/jobs/{job}/events", key=key)
    result = peer.call("GET", f"/v1/jobs/{job}/result?wait_seconds=60", key=key)
    assert result.json["stdout"] == "over-http2\n"
    streamed = peer.answer(events)
    assert streamed.header("content-type") == "text/event-stream"
    assert b"event: finished" in streamed.body
    assert "listening on https://" in served[0].log.read_text("utf-8")


def test_a_stream_begins_before_there_is_anything_to_tell(
    peer: Http2Peer, served: tuple[Gateway, Path]
) -> None:
    """Its head is sent at once, so that a client can tell a quiet job from a server that hangs."""
    key = served[0].api_key
    spec = {"language": "bash", "code": "exec sleep 60"}
    job = peer.call("POST", "/v1/jobs", key=key, body=json.dumps(spec).encode()).json["job_id"]
    quiet = peer.request("GET", f"/v1/jobs/{job}/events?after=1000", key=key)
    while quiet not in peer.heads:
        assert peer.step()
    assert not peer.bodies[quiet]  # a comment would come after 15 seconds
    assert peer.call("DELETE", f"/v1/jobs/{job}", key=key).status == 200
