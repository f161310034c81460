"""Who is refused, with what, in which order, and what becomes of the connection."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from rookhold_server.http.app import ROUTES
from rookhold_server.identity.scopes import Scope
from rookhold_types.ids import is_job_id

Start = Callable[..., Any]
SPEC = {"language": "bash", "code": "true"}
BODY = json.dumps(SPEC).encode()


def test_a_submission_without_credentials_is_401_with_the_plain_challenge(gateway: Any) -> None:
    answer = gateway.submit(SPEC, key=None)
    assert (answer.status, answer.code) == (401, "missing_api_key")
    assert answer.header("www-authenticate") == 'Bearer realm="rookhold"'
    assert answer.header("cache-control") == "no-store"
    assert answer.header("pragma") == "no-cache"
    assert answer.json["error"]["retryable"] is False
    assert answer.header("x-ratelimit-limit") is None


def test_a_wrong_bearer_is_told_so(gateway: Any) -> None:
    answer = gateway.submit(SPEC, key="key-of-a-tenant-A")
    assert (answer.status, answer.code) == (401, "invalid_api_key")
    assert answer.header("www-authenticate") == 'Bearer realm="rookhold", error="invalid_token"'


@pytest.mark.parametrize(
    "value",
    [
        "Basic a2V5",
        "Bearer",
        "Bearer ",
        "Bearer  key-of-a-tenant-a",
        "Bearer key-of-a-tenant-a x",
        "key-of-a-tenant-a",
        "Bearer kéy",
        "Bearer " + "x" * 16_384,
    ],
)
def test_a_malformed_header_is_invalid_authorization(gateway: Any, value: str) -> None:
    answer = gateway.submit(SPEC, key=None, headers=(("authorization", value),))
    assert (answer.status, answer.code) == (401, "invalid_authorization")
    assert answer.header("www-authenticate") == 'Bearer realm="rookhold", error="invalid_request"'


def test_two_headers_are_invalid_even_if_both_are_good(gateway: Any) -> None:
    answer = gateway.submit(SPEC, headers=(("authorization", "Bearer key-of-a-tenant-a"),))
    assert answer.code == "invalid_authorization"


def test_the_scheme_may_be_in_any_case(gateway: Any) -> None:
    headers = (("authorization", "bEaReR key-of-a-tenant-a"),)
    assert gateway.call("GET", "/v1/whoami", key=None, headers=headers).status == 200


def early_refusals(start: Start) -> list[tuple[str, Any, dict[str, Any]]]:
    full = start()
    for pool in (full.services.pools.small_bodies, full.services.pools.other_bodies):
        pool._patience = 0.1
        pool._total = 0
    full_tenant = start()
    for pool in (full_tenant.services.pools.small_bodies, full_tenant.services.pools.other_bodies):
        pool._patience = 0.1
        pool._per_tenant = 0
    spent = start(rate=1)
    assert spent.call("GET", "/v1/whoami").status == 200
    stopping = start()
    stopping.do(stopping.services.pools.close)
    plain = start()
    json_type = (("content-type", "application/json"),)
    return [
        ("missing_api_key", plain, {"key": None, "headers": json_type}),
        ("insufficient_scope", plain, {"key": "only-jobs:read", "headers": json_type}),
        ("rate_limit_exceeded", spent, {"headers": json_type}),
        ("submit_body_capacity", full, {"headers": json_type}),
        ("tenant_submit_body_capacity", full_tenant, {"headers": json_type}),
        ("shutting_down", stopping, {"headers": json_type}),
        ("unsupported_media_type", plain, {"headers": (("content-type", "text/plain"),)}),
    ]


def test_an_early_refusal_of_an_unread_body_closes_the_connection(start: Start) -> None:
    framings = (
        (("content-length", "1000"),),
        (("transfer-encoding", "chunked"),),
        (("content-length", "00"),),
    )
    for code, gateway, options in early_refusals(start):
        for framing in framings:
            peer = gateway.connect()
            peer.request(
                "POST", "/v1/jobs", **(options | {"headers": options["headers"] + framing})
            )
            answer = peer.answer()
            assert answer.code == code
            assert answer.header("connection") == "close", (code, framing)
            assert peer.ended(10), (code, framing)  # "within a second": H3, in acceptance
            assert gateway.engine.accepts_begun == 0


def test_an_early_refusal_without_a_body_keeps_the_connection(start: Start) -> None:
    for code, gateway, options in early_refusals(start):
        for framing in ((("content-length", "0"),), ()):
            peer = gateway.connect()
            peer.request(
                "POST", "/v1/jobs", **(options | {"headers": options["headers"] + framing})
            )
            answer = peer.answer()
            assert (answer.code, answer.header("connection")) == (code, None)
            peer.request("GET", "/healthz")
            assert peer.answer().status == 200


def test_a_declared_length_over_the_cap_is_413_and_closes(gateway: Any) -> None:
    peer = gateway.connect()
    headers = (("content-length", str(24 * 1024 * 1024 + 1)), ("content-type", "application/json"))
    peer.request("POST", "/v1/jobs", headers=headers)
    answer = peer.answer()
    assert (answer.status, answer.code) == (413, "request_body_too_large")
    assert answer.header("connection") == "close"
    assert peer.ended(1)


def test_an_undeclared_body_over_the_cap_is_413_and_closes(gateway: Any) -> None:
    peer = gateway.connect()
    headers = (("transfer-encoding", "chunked"), ("content-type", "application/json"))
    peer.request("POST", "/v1/jobs", headers=headers)
    piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    try:
        for _ in range(26):
            peer.send(piece)
    except ConnectionError:
        pass  # it need not take what it will not read
    answer = peer.answer()
    assert (answer.status, answer.code) == (413, "request_body_too_large")
    assert answer.header("connection") == "close"


def test_an_unauthenticated_oversized_request_is_401(gateway: Any) -> None:
    peer = gateway.connect()
    peer.request("POST", "/v1/jobs", key=None, headers=(("content-length", "999999999999"),))
    assert peer.answer().code == "missing_api_key"


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{nonsense", "invalid_json"),
        (b'{"language":"bash","code":"true","more":1}', "invalid_json"),
        (b'{"language":"bash","code":" "}', "empty_code"),
        (b'{"language":"fortran","code":"x"}', "unsupported_language"),
    ],
)
def test_a_body_read_in_full_keeps_the_connection(
    gateway: Any, body: bytes, code: str, *, chunked: bool
) -> None:
    peer = gateway.connect()
    if chunked:
        headers = (("transfer-encoding", "chunked"), ("content-type", "application/json"))
        peer.request("POST", "/v1/jobs", headers=headers)
        peer.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    else:
        peer.request("POST", "/v1/jobs", body=body)
    peer.request("GET", "/v1/whoami")  # pipelined
    answer = peer.answer()
    assert (answer.status, answer.code, answer.header("connection")) == (400, code, None)
    assert peer.answer().json["tenant"] == "a"


def test_every_route_accepts_only_its_own_scope(gateway: Any) -> None:
    gateway.engine.add("a")
    for path, methods in ROUTES.items():
        for method, endpoint in methods.items():
            if endpoint.scope is None:
                continue
            for scope in Scope:
                answer = gateway.call(
                    method, path.replace("{job_id}", "x"), key=f"only-{scope}", body=b"{}"
                )
                if scope is endpoint.scope:
                    assert answer.status not in {401, 403, 405}, (method, path, scope)
                    continue
                assert (answer.status, answer.code) == (403, "insufficient_scope")
                assert answer.header("www-authenticate") == (
                    f'Bearer realm="rookhold", error="insufficient_scope", scope="{endpoint.scope}"'
                )
                assert answer.header("cache-control") == "no-store"
                assert answer.header("x-ratelimit-limit") == "1000000"
                assert answer.header("x-ratelimit-remaining") is not None


def test_whoami_shows_the_caller(gateway: Any) -> None:
    assert gateway.call("GET", "/v1/whoami").json == {
        "tenant": "a",
        "principal_id": "legacy:a",
        "credential_id": None,
        "auth_method": "api_key",
        "scopes": ["jobs:submit", "jobs:read", "jobs:cancel", "service:read", "metrics:read"],
        "expires_at_ms": None,
    }
    one = gateway.call("GET", "/whoami", key="only-service:read").json
    assert (one["credential_id"], one["scopes"]) == ("c1", ["service:read"])


def test_every_answer_has_a_request_id_of_our_own_and_reflects_nothing(gateway: Any) -> None:
    mark = "0123456789abcdef0123456789abcdef"
    headers = (
        ("x-request-id", mark),
        ("traceparent", f"00-{mark}-0123456789abcdef-01"),
        ("tracestate", f"v={mark}"),
        ("baggage", f"user={mark}"),
    )
    seen = set()
    for method, path, key in (
        ("GET", "/healthz", None),
        ("GET", "/nowhere", None),
        ("PUT", "/v1/jobs", None),
        ("POST", "/v1/jobs", None),
        ("POST", "/v1/jobs", "key-of-a-tenant-a"),
        ("GET", "/v1/jobs/" + mark, "key-of-a-tenant-a"),
        ("GET", "/v1/jobs", "key-of-a-tenant-a"),
    ):
        answer = gateway.call(method, path, key=key, headers=headers)
        request_id = answer.header("x-request-id")
        assert is_job_id(request_id), "not a UUIDv7"
        assert mark not in answer.body.decode()
        assert all(mark not in value for _, value in answer.headers)
        assert not [name for name, _ in answer.headers if name.startswith("access-control-")]
        seen.add(request_id)
    assert len(seen) == 7


def test_the_budget_is_per_tenant_and_minute(start: Start) -> None:
    now = [60.0 * 1000 + 12.5]
    gateway = start(rate=1, clock=lambda: now[0])
    first = gateway.call("GET", "/v1/whoami", key="only-jobs:read")
    assert (first.status, first.header("x-ratelimit-remaining")) == (403, "0")
    second = gateway.call("GET", "/v1/whoami")
    assert (second.status, second.code) == (429, "rate_limit_exceeded")
    assert second.json["error"]["retryable"] is True
    assert second.header("retry-after") == "48"
    assert second.header("x-ratelimit-limit") is None
    assert second.header("cache-control") == "no-store"
    assert gateway.call("GET", "/healthz", key=None).status == 200
    assert gateway.call("GET", "/v1/whoami", key="key-of-a-tenant-b").status == 200
    now[0] += 47.5
    assert gateway.call("GET", "/v1/whoami").status == 200


def test_a_401_costs_no_budget(start: Start) -> None:
    gateway = start(rate=1)
    for _ in range(5):
        assert gateway.call("GET", "/v1/whoami", key="wrong").status == 401
    assert gateway.call("GET", "/v1/whoami").status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/v1",
        "/v1/",
        "/v1/jobs/",
        "/v1/jobs/x/y",
        "/v1/nowhere",
        "/v1/jobs/x%2Fresult/z",
    ],
)
def test_an_unknown_path_is_404_without_authentication(gateway: Any, path: str) -> None:
    answer = gateway.call("GET", path, key=None)
    assert (answer.status, answer.code) == (404, "not_found")


def test_an_encoded_slash_is_part_of_an_id_and_leads_nowhere_else(gateway: Any) -> None:
    job_id = gateway.engine.add("a")
    for path in ("a%2Fb", "a%2fresult", f"{job_id}%2Fresult", "..%2Fjobs", "%2F"):
        answer = gateway.call("GET", f"/v1/jobs/{path}")
        assert (answer.status, answer.code) == (404, "job_not_found"), path
        assert gateway.call("GET", f"/v1/jobs/{path}", key=None).code == "missing_api_key"
        assert gateway.call("GET", f"/v1/jobs/{path}/replay").code == "job_not_found"
    for path in ("/v1%2Fjobs", "/v1/jobs%2F" + job_id, "/%2Fhealthz"):
        answer = gateway.call("GET", path)
        assert (answer.status, answer.code) == (404, "not_found"), path
    assert gateway.call("GET", f"/v1/jobs/{job_id}").status == 200


@pytest.mark.parametrize("path", sorted(ROUTES))
def test_a_wrong_method_is_405_with_the_right_ones(gateway: Any, path: str) -> None:
    answer = gateway.call("PATCH", path.replace("{job_id}", "x"), key=None)
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    allowed = set(re.split(", ", answer.header("allow") or ""))
    got = ROUTES[path].get("GET")
    assert allowed == set(ROUTES[path]) | ({"HEAD"} if got and got.has_head else set())


@pytest.mark.parametrize("job_id", ["theirs", "0", "%00", "..", "x" * 300, "%F0%9F%98%80", "'--"])
def test_a_foreign_job_is_indistinguishable_from_a_missing_one(gateway: Any, job_id: str) -> None:
    if job_id == "theirs":
        job_id = gateway.engine.add("b")
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/replay"),
        ("GET", "/replay?after=x&limit=y&z=1"),
        ("GET", "/result"),
        ("GET", "/result?wait_seconds=0"),
        ("GET", "/attestation"),
        ("GET", "/attestation?wait_seconds=30"),
        ("GET", "/result-artifact"),
    ):
        answer = gateway.call(method, f"/v1/jobs/{job_id}{path}")
        assert (answer.status, answer.code) == (404, "job_not_found"), (method, path)
    assert gateway.call("GET", "/v1/jobs").json["items"] == []


def test_a_fault_is_500_and_says_nothing(gateway: Any) -> None:
    gateway.engine.fault = RuntimeError("a path of the host")
    answer = gateway.submit(SPEC)
    assert (answer.status, answer.code) == (500, "internal_error")
    assert answer.json["error"]["retryable"] is True
    assert answer.header("retry-after") is None
    assert b"host" not in answer.body
    gateway.engine.fault = None
    assert gateway.submit(SPEC).status == 201
