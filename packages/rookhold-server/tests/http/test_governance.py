"""A server without the governance extra knows its routes, and says that it has not got it."""

from collections.abc import Callable
from typing import Any

import pytest

from rookhold_server.http.flat import flat_problem
from rookhold_server.http.routes.governance import ROOTS
from rookhold_server.refusal import Refusal

Start = Callable[..., Any]


def flat(answer: Any) -> dict[str, Any]:
    assert answer.header("content-type") == "application/json"
    assert answer.header("cache-control") == "no-store"
    assert answer.json["request_id"] == answer.header("x-request-id")
    body: dict[str, Any] = answer.json
    return body


@pytest.mark.parametrize("root", sorted(ROOTS))
def test_its_routes_are_422_for_whoever_may_ask(gateway: Any, root: str) -> None:
    for method, path in (
        ("GET", f"/v1/{root}"),
        ("POST", f"/v1/{root}/x/fork"),
        ("DELETE", f"/v1/{root}/x"),
    ):
        answer = gateway.call(method, path, body=b"{" if method == "POST" else None)
        body = flat(answer)
        assert (answer.status, body["code"]) == (422, "capability_unavailable")
        assert answer.header("x-ratelimit-limit") is not None
        refusal = body.pop("refusal")
        assert set(body) == {"error", "code", "request_id"}
        assert refusal == {
            "refused": True,
            "reason": "environment",
            "retryable": False,
            "request_id": body["request_id"],
            "message": body["error"],
        }


@pytest.mark.parametrize("key", [None, "wrong-wrong-wrong-wrong"])
def test_nobody_else_is_told_even_that(gateway: Any, key: str | None) -> None:
    answer = gateway.call("GET", "/v1/citadels", key=key)
    body = flat(answer)
    assert (answer.status, body["code"]) == (401, "authentication_required")
    assert body["refusal"]["reason"] == "permission"
    assert answer.header("www-authenticate").startswith('Bearer realm="rookhold"')


def test_the_budget_is_one_with_all_other_routes(start: Start) -> None:
    gateway = start(rate=1, clock=lambda: 90.0)
    assert gateway.call("GET", "/v1/whoami").status == 200
    answer = gateway.call("GET", "/v1/runs")
    body = flat(answer)
    assert (answer.status, body["code"]) == (429, "rate_limited")
    assert (body["refusal"]["reason"], body["refusal"]["retryable"]) == ("shed", True)
    assert answer.header("retry-after") == "30"


@pytest.mark.parametrize("path", ["/v1/citadel", "/v1/citadelsx", "/citadels", "/v1/", "/v1"])
def test_other_unknown_paths_stay_unknown(gateway: Any, path: str) -> None:
    answer = gateway.call("GET", path, key=None)
    assert (answer.status, answer.code) == (404, "not_found")


def test_what_has_no_word_there_is_an_internal_error_and_claims_nothing() -> None:
    status, _, body = flat_problem(Refusal("internal_error"), "r")
    assert status == 500
    assert b"refusal" not in body
    assert b'"code":"internal_error"' in body
