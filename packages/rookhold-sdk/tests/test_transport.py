from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from rookhold import (
    ApiError,
    CapacityError,
    ConfigurationError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    PolicyError,
    ProtocolError,
    RedirectError,
    Rookhold,
    ServerError,
    TimedOutError,
    UnauthorizedError,
    UnreachableError,
    _transport,
)

if TYPE_CHECKING:
    from conftest import Scripted

OK = {"ok": True}


def test_requests_share_one_connection(gateway: Scripted) -> None:
    gateway.then(OK).then(OK).then(OK)
    with gateway.client() as client:
        assert [client.health() for _ in range(3)] == [True] * 3
    assert len({request.connection for request in gateway.seen}) == 1


def test_a_refusal_keeps_the_connection_usable(gateway: Scripted) -> None:
    gateway.then_refuse(404, "job_not_found").then(OK)
    with gateway.client() as client:
        with pytest.raises(NotFoundError):
            client.job("x")
        client.health()
    assert len({request.connection for request in gateway.seen}) == 1


def test_a_dropped_connection_is_asked_again(gateway: Scripted) -> None:
    gateway.then_drop().then(OK)
    with gateway.client() as client:
        assert client.health()
    assert len(gateway.seen) == 2


def test_a_connection_that_keeps_dropping_is_unreachable(gateway: Scripted) -> None:
    gateway.then_drop().then_drop().then_drop()
    with gateway.client() as client, pytest.raises(UnreachableError) as caught:
        client.health()
    assert caught.value.code == "unreachable"
    assert len(gateway.seen) == 3


def test_an_answer_cut_short_is_not_taken_for_whole(gateway: Scripted) -> None:
    gateway.then_cut_short().then(OK)
    with gateway.client() as client:
        assert client.health()
    assert len(gateway.seen) == 2


def test_a_repeated_submission_carries_the_same_key(gateway: Scripted) -> None:
    gateway.then_drop().then({"job_id": "j", "status": "queued"}, 201, idempotency_replayed="true")
    with gateway.client() as client:
        submitted = client.submit("python", "print(1)")
    first, second = (request.headers["idempotency-key"] for request in gateway.seen)
    assert first == second
    assert submitted.replayed


def test_nobody_listening_is_unreachable_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Rookhold(f"http://127.0.0.1:{port}") as client, pytest.raises(UnreachableError):
        client.health()


@pytest.mark.parametrize("fault", ["then_stall", "then_trickle"])
def test_the_timeout_holds_for_the_answer_as_a_whole(gateway: Scripted, fault: str) -> None:
    getattr(gateway, fault)()
    started = time.monotonic()
    with gateway.client(timeout=0.3) as client, pytest.raises(TimedOutError) as caught:
        client.health()
    assert time.monotonic() - started < 5
    assert caught.value.code == "timed_out"
    assert len(gateway.seen) == 1, "a slow gateway must not be asked again"


def test_a_redirect_is_refused_and_the_key_goes_nowhere(gateway: Scripted) -> None:
    gateway.then({}, 302, location=f"{gateway.base_url}/elsewhere")
    with gateway.client() as client, pytest.raises(RedirectError):
        client.whoami()
    assert [request.path for request in gateway.seen] == ["/v1/whoami"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequestError),
        (401, UnauthorizedError),
        (403, ForbiddenError),
        (404, NotFoundError),
        (413, InvalidRequestError),
        (422, PolicyError),
        (429, CapacityError),
        (500, ServerError),
        (503, CapacityError),
        (507, CapacityError),
    ],
)
def test_a_refusal_is_an_error_of_its_kind(
    gateway: Scripted, status: int, kind: type[ApiError]
) -> None:
    gateway.then_refuse(status, "some_code", retryable=True, retry_after="7")
    with gateway.client() as client, pytest.raises(ApiError) as caught:
        client.whoami()
    error = caught.value
    assert type(error) is kind
    assert (error.code, error.status, error.retryable) == ("some_code", status, True)
    assert (error.request_id, error.retry_after) == ("r-1", 7)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"error": "x"}', b"\xff", b"[" * 100_000])
def test_a_refusal_without_the_envelope_is_no_gateway(gateway: Scripted, body: bytes) -> None:
    gateway.then(body, 502)
    with gateway.client() as client, pytest.raises(ProtocolError):
        client.whoami()


@pytest.mark.parametrize("body", [b"", b"nothing", b"[1]", b"[" * 100_000, b'{"ok": 1}'])
def test_an_answer_of_another_shape_is_refused(gateway: Scripted, body: bytes) -> None:
    gateway.then(body)
    with gateway.client() as client, pytest.raises(ProtocolError):
        client.health()


def test_what_is_not_http_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = threading.Thread(target=speak)
        thread.start()
        with (
            Rookhold(f"http://127.0.0.1:{listener.getsockname()[1]}") as client,
            pytest.raises(ProtocolError),
        ):
            client.health()
        thread.join(10)


def test_an_endless_answer_is_cut_at_the_bound(
    gateway: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_transport, "ANSWER_BYTES_MAX", 1000)
    gateway.then(b" " * 1001)
    with gateway.client() as client, pytest.raises(ProtocolError):
        client.health()


@pytest.mark.parametrize(
    "base_url",
    [
        "127.0.0.1:7300",
        "ftp://127.0.0.1",
        "http://",
        "http://user:secret@127.0.0.1",
        "http://127.0.0.1/?a=b",
        "http://127.0.0.1/#a",
        "http://127.0.0.1:99999",
        "http://127.0.0.1\r\nX: y",
    ],
)
def test_an_unusable_address_is_refused_before_anything_is_sent(base_url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Rookhold(base_url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("api_key", ["a b", "a\r\nX-Evil: 1", "schlüssel", "\x7f"])
def test_an_unusable_key_is_refused_and_not_repeated(api_key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Rookhold("http://127.0.0.1:1", api_key)
    assert api_key not in str(caught.value)


def test_a_path_prefix_is_kept_and_ids_cannot_leave_their_place(gateway: Scripted) -> None:
    gateway.then_refuse(404, "job_not_found")
    with Rookhold(f"{gateway.base_url}/rookhold/", "key") as client, pytest.raises(NotFoundError):
        client.job("../whoami?a=b")
    assert gateway.seen[0].path == "/rookhold/v1/jobs/..%2Fwhoami%3Fa%3Db"


def test_address_and_key_come_from_the_environment(
    gateway: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOKHOLD_BASE_URL", gateway.base_url)
    monkeypatch.setenv("ROOKHOLD_API_KEY", "from-the-environment")
    gateway.then(OK)
    with Rookhold() as client:
        client.health()
    assert gateway.seen[0].headers["authorization"] == "Bearer from-the-environment"


def test_a_client_serves_threads_at_once(gateway: Scripted) -> None:
    barrier = threading.Barrier(4, timeout=30)
    for _ in range(4):
        # No answer comes before all four requests are there, so none may wait for another.
        gateway.steps.append(
            lambda handler: (barrier.wait(), handler.answer(200, b'{"ok":true}', {}))[1]
        )
    found: list[bool] = []
    with gateway.client() as client:
        threads = [threading.Thread(target=lambda: found.append(client.health())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert found == [True] * 4


def test_a_closed_client_refuses(gateway: Scripted) -> None:
    client = gateway.client()
    client.close()
    with pytest.raises(ConfigurationError):
        client.health()
