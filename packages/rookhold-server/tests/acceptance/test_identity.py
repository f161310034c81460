"""Who may do what: the lines of the acceptance list about callers, against a real server.

Each test has the number of its line. One server takes all three kinds of credentials.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import statistics
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from forgeries import Forger
from gateway import Gateway, eventually
from issuer import AUDIENCE, Issuer, SigningKey

from rookhold_server.http.app import ROUTES
from rookhold_server.identity.credentials import encode_credentials
from rookhold_server.identity.keeping import Keeper
from rookhold_server.identity.scopes import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECONDS = 60
PLAIN = 'Bearer realm="rookhold"'
UPGRADE = {  # of a WebSocket; without it a stream says that it wants one, whatever the job
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}
SPEC = {"language": "bash", "code": "true"}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        code: str = self.json["error"]["code"]
        assert self.json["error"]["request_id"] == self.headers["x-request-id"]
        return code


class Site:
    """A server, the files of its credentials, and the provider that it knows."""

    def __init__(self, place: Path, issuer: Issuer, **settings: str) -> None:
        self.issuer = issuer
        self.file = place / "credentials.json"
        self.keeper = Keeper(self.file, place / "pepper")
        self.tokens: dict[str, str] = {}
        for scope in Scope:
            self.add(scope.name.lower().replace("_", "-"), scope)
        self.add("all", *Scope)
        self.add("theirs", *Scope, tenant="other")
        self.gateway = Gateway(
            place / "home",
            sandbox="off",
            ROOKHOLD_LOG_LEVEL="debug",
            ROOKHOLD_RATE_PER_MIN="1000000",
            ROOKHOLD_CREDENTIALS_FILE=str(self.file),
            ROOKHOLD_CREDENTIAL_PEPPER_FILE=str(place / "pepper"),
            **{**issuer.settings(), **settings},
        )
        self.legacy = self.gateway.api_key

    def add(self, key_id: str, *scopes: Scope, tenant: str = "acme") -> str:
        made = self.keeper.create(
            tenant=tenant, principal="bot", scopes=scopes, now_ms=now_ms(), key_id=key_id
        )
        self.tokens[key_id] = made.token
        return made.token

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.gateway.address, timeout=SECONDS)

    def call(
        self,
        method: str,
        path: str,
        token: str | None = None,
        *,
        authorization: str | None = None,
        body: object = None,
        connection: http.client.HTTPConnection | None = None,
    ) -> Answer:
        headers = dict(UPGRADE) if path.endswith("/stream") else {}
        if token is not None or authorization is not None:
            headers["Authorization"] = authorization or f"Bearer {token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        used = connection or self.connect()
        try:
            data = None if body is None else json.dumps(body)
            used.request(method, path, body=data, headers=headers)
            got = used.getresponse()
            fields = {name.lower(): value for name, value in got.getheaders()}
            return Answer(got.status, fields, got.read())
        finally:
            if connection is None:
                used.close()

    def whoami(self, token: str) -> Answer:
        return self.call("GET", "/v1/whoami", token)

    def hang_up(self) -> None:
        assert self.gateway.process is not None
        self.gateway.process.send_signal(signal.SIGHUP)

    def submit(self, token: str, code: str = "true") -> str:
        answer = self.call("POST", "/v1/jobs", token, body={"language": "bash", "code": code})
        assert answer.status == 201
        job_id: str = answer.json["job_id"]
        return job_id

    def log(self) -> str:
        return self.gateway.log.read_text("utf-8")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as stack:
        place = tmp_path_factory.mktemp("site")
        issuer = stack.enter_context(Issuer(place, r="RS256", e="ES256", d="EdDSA"))
        running = Site(place, issuer)
        stack.enter_context(running.gateway)
        yield running


def test_h1_a_submission_without_credentials(site: Site) -> None:
    answer = site.call("POST", "/v1/jobs", body=SPEC)
    assert (answer.status, answer.code) == (401, "missing_api_key")
    assert answer.headers["www-authenticate"] == PLAIN
    assert answer.headers["cache-control"] == "no-store"
    assert uuid.UUID(answer.headers["x-request-id"]).version == 7
    assert answer.json["error"]["retryable"] is False


def test_h2_a_wrong_bearer_and_another_scheme(site: Site) -> None:
    for token in ("wrong-wrong-wrong-wrong", site.tokens["all"] + "x", site.issuer.token(aud="x")):
        answer = site.call("POST", "/v1/jobs", token, body=SPEC)
        assert (answer.status, answer.code) == (401, "invalid_api_key")
        assert answer.headers["www-authenticate"] == f'{PLAIN}, error="invalid_token"'
    answer = site.call("POST", "/v1/jobs", authorization="Basic a2V5", body=SPEC)
    assert (answer.status, answer.code) == (401, "invalid_authorization")
    assert answer.headers["www-authenticate"] == f'{PLAIN}, error="invalid_request"'


def test_h7_every_route_accepts_only_its_own_scope(site: Site) -> None:
    with closing(site.connect()) as connection:
        for path, methods in ROUTES.items():
            for method, endpoint in methods.items():
                if endpoint.scope is None:
                    continue
                for scope in Scope:
                    token = site.tokens[scope.name.lower().replace("_", "-")]
                    shown = path.replace("{job_id}", "x")
                    answer = site.call(method, shown, token, connection=connection)
                    if scope is endpoint.scope:
                        assert answer.status not in {401, 403}, (method, path, scope)
                        continue
                    assert (answer.status, answer.code) == (403, "insufficient_scope")
                    assert answer.headers["www-authenticate"] == (
                        f'{PLAIN}, error="insufficient_scope", scope="{endpoint.scope}"'
                    )
                    assert answer.headers["cache-control"] == "no-store"
                    assert answer.headers["x-ratelimit-limit"] == "1000000"
                    assert answer.headers["x-ratelimit-remaining"].isdigit()


def test_h8_whoami_shows_principal_credential_method_and_the_one_scope(site: Site) -> None:
    answer = site.whoami(site.tokens["service-read"])
    assert answer.status == 200
    assert answer.json == {
        "tenant": "acme",
        "principal_id": "bot",
        "credential_id": "service-read",
        "auth_method": "api_key",
        "scopes": ["service:read"],
        "expires_at_ms": None,
    }
    assert site.call("GET", "/whoami", site.tokens["service-read"]).json == answer.json


def test_h8_whoami_of_a_legacy_key_and_of_an_access_token(site: Site) -> None:
    every = [scope.value for scope in Scope]
    assert site.whoami(site.legacy).json == {
        "tenant": "local",
        "principal_id": "legacy:local",
        "credential_id": None,
        "auth_method": "api_key",
        "scopes": every,
        "expires_at_ms": None,
    }
    expires = int(time.time()) + 600
    shown = site.whoami(site.issuer.token(exp=expires, scope="service:read jobs:submit")).json
    assert shown.pop("principal_id").startswith("oidc:")
    assert shown == {
        "tenant": "acme",
        "credential_id": None,
        "auth_method": "jwt",
        "scopes": ["jobs:submit", "service:read"],
        "expires_at_ms": expires * 1000,
    }


def test_h10_a_budget_of_one_a_minute(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    keeper = Keeper(place / "credentials.json", place / "pepper")
    readers = [
        keeper.create(tenant="local", principal=None, scopes=scopes, now_ms=now_ms()).token
        for scopes in ((Scope.JOBS_READ,), (Scope.SERVICE_READ,))
    ]
    gateway = Gateway(
        place / "home",
        sandbox="off",
        ROOKHOLD_RATE_PER_MIN="1",
        ROOKHOLD_CREDENTIALS_FILE=str(place / "credentials.json"),
        ROOKHOLD_CREDENTIAL_PEPPER_FILE=str(place / "pepper"),
    )
    with gateway:
        site = Site.__new__(Site)
        site.gateway = gateway
        while time.time() % 60 > 50:  # the window turns with the minute
            time.sleep(0.5)
        for _ in range(3):
            assert site.whoami("wrong-wrong-wrong-wrong").status == 401
        first = site.whoami(readers[0])
        assert (first.status, first.headers["x-ratelimit-remaining"]) == (403, "0")
        second = site.whoami(readers[1])  # another credential of the tenant, the same budget
        assert (second.status, second.code) == (429, "rate_limit_exceeded")
        assert second.json["error"]["retryable"] is True
        assert 1 <= int(second.headers["retry-after"]) <= 60
        assert "x-ratelimit-limit" not in second.headers
        assert site.whoami(f"{gateway.api_key}-other").status == 200
        assert site.call("GET", "/healthz").status == 200


def test_h11_an_unknown_path_and_a_wrong_method_need_no_credentials(site: Site) -> None:
    answer = site.call("GET", "/v1/nowhere")
    assert (answer.status, answer.code) == (404, "not_found")
    answer = site.call("PUT", "/v1/jobs")
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "GET, HEAD, POST"


def of_a_job(job_id: str) -> list[tuple[str, str]]:
    return [
        (method, path.replace("{job_id}", job_id))
        for path, methods in ROUTES.items()
        if "{job_id}" in path
        for method in methods
    ]


def test_h12_a_foreign_job_is_missing_everywhere(site: Site) -> None:
    job_id = site.submit(site.tokens["theirs"])
    for ours in (site.tokens["all"], site.legacy, site.issuer.token(scope="jobs:read jobs:cancel")):
        for named in (job_id, str(uuid.uuid4()), "malformed"):
            for method, path in of_a_job(named):
                answer = site.call(method, path, ours)
                assert (answer.status, answer.code) == (404, "job_not_found"), (method, path)
        listed = site.call("GET", "/v1/jobs?limit=500", ours).json["items"]
        assert job_id not in {item["job_id"] for item in listed}
    assert site.call("GET", f"/v1/jobs/{job_id}", site.tokens["theirs"]).status == 200


def times(call: Callable[[], Answer], other: Callable[[], Answer], rounds: int) -> float:
    """Return how long one takes as a ratio of how long the other does, asked in turns."""
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(2 * rounds):
        which = number % 2
        began = time.perf_counter()
        answer = (other if which else call)()
        taken[which].append(time.perf_counter() - began)
        assert answer.status in {401, 404}
    return statistics.median(taken[0]) / statistics.median(taken[1])


def told_apart(call: Callable[[], Answer], other: Callable[[], Answer]) -> bool:
    """Whether one takes longer every time; on a busy host it may seem so once, or the reverse."""
    ratios = []
    for rounds in (60, 120, 240):
        ratios.append(times(call, other, rounds))
        if not (min(ratios) > 1.25 or max(ratios) < 0.8):
            return False
    return True


def test_h12_a_foreign_job_takes_as_long_as_a_missing_one(site: Site) -> None:
    job_id = site.submit(site.tokens["theirs"], "head -c 900000 /dev/zero | tr '\\0' x")
    wait = f"/v1/jobs/{job_id}/result?wait_seconds=60"
    assert site.call("GET", wait, site.tokens["theirs"]).json["status"] == "succeeded"
    with closing(site.connect()) as connection:
        for method, suffix in (
            ("GET", ""),
            ("GET", "/result"),
            ("GET", "/replay"),
            ("GET", "/attestation"),
            ("GET", "/events"),
            ("POST", "/stream-ticket"),
            ("DELETE", ""),
        ):

            def ask(named: str, method: str = method, suffix: str = suffix) -> Answer:
                path = f"/v1/jobs/{named}{suffix}"
                return site.call(method, path, site.tokens["all"], connection=connection)

            assert not told_apart(partial(ask, job_id), partial(ask, f"{job_id[:-4]}0000")), suffix


def test_7_3_a_known_key_id_takes_as_long_as_an_unknown_one(site: Site) -> None:
    wrong = site.tokens["all"][:-1] + ("x" if site.tokens["all"][-1] != "x" else "y")
    unknown = wrong.replace("_all_", "_abc_", 1)
    with closing(site.connect()) as connection:

        def ask(token: str) -> Answer:
            return site.call("GET", "/v1/whoami", token, connection=connection)

        assert not told_apart(partial(ask, wrong), partial(ask, unknown))


def test_c5_a_structured_token_is_not_a_legacy_key(site: Site, tmp_path: Path) -> None:
    equal = "rookhold_no-such-id_" + "s" * 43
    other = tmp_path / "place"
    other.mkdir()
    with Issuer(other, e="ES256") as issuer:
        second = Site(other, issuer, ROOKHOLD_API_KEYS=f"local:{equal}")
        with second.gateway:
            answer = second.whoami(equal)
            assert (answer.status, answer.code) == (401, "invalid_api_key")
            assert second.whoami(second.tokens["all"]).status == 200
    assert site.whoami(equal).status == 401


def test_c6_a_changed_file_and_a_hang_up_count_at_once(site: Site) -> None:
    token = site.add("added", Scope.SERVICE_READ)
    site.hang_up()
    assert eventually(SECONDS, lambda: site.whoami(token).status == 200)
    site.keeper.revoke("added", at_ms=now_ms())
    site.hang_up()
    assert eventually(SECONDS, lambda: site.whoami(token).status == 401)


def test_c6_a_changed_file_is_noticed_without_a_signal(site: Site) -> None:
    token = site.add("noticed", Scope.SERVICE_READ)
    assert eventually(SECONDS, lambda: site.whoami(token).status == 200)


def test_c6_a_bad_file_leaves_the_old_set(site: Site) -> None:
    good = site.file.read_bytes()
    secret = "a-word-that-nobody-may-see"
    for content in (b"{", encode_credentials(()), good.replace(b'"acme"', f'"{secret} "'.encode())):
        before = site.log().count("credentials_kept")
        site.file.write_bytes(content)
        site.hang_up()
        assert eventually(SECONDS, lambda at=before: site.log().count("credentials_kept") > at)
        assert site.whoami(site.tokens["service-read"]).status == 200
    site.file.write_bytes(good)
    token = site.add("after", Scope.SERVICE_READ)
    assert eventually(SECONDS, lambda: site.whoami(token).status == 200)
    assert "ROOKHOLD_CREDENTIALS_FILE" in site.log()
    assert secret not in site.log()


def test_c6_a_future_revocation_ends_it_then_and_whoami_says_when(site: Site) -> None:
    token = site.add("leaving", Scope.SERVICE_READ)
    assert eventually(SECONDS, lambda: site.whoami(token).status == 200)
    end = now_ms() + 4000
    site.keeper.revoke("leaving", at_ms=end)
    site.hang_up()
    assert eventually(3.5, lambda: site.whoami(token).json.get("expires_at_ms") == end)
    assert eventually(SECONDS, lambda: site.whoami(token).status == 401)
    assert now_ms() >= end


BROKEN: dict[str, dict[str, Any]] = {
    "typ": {"header": {"typ": "JWT"}},
    "alg none": {"header": {"alg": "none"}},
    "alg HMAC": {"header": {"alg": "HS256"}},
    "alg not listed": {"header": {"alg": "PS256"}},
    "alg of another family": {"header": {"alg": "ES256"}},
    **{
        name: {"header": {name: "x"}} for name in ("jku", "jwk", "x5u", "x5c", "crit", "enc", "zip")
    },
    "no kid": {"header": {"kid": None}},
    "kid of another key": {"header": {"kid": "e"}},
    **{
        f"no {name}": {name: None}
        for name in ("iss", "sub", "aud", "exp", "iat", "jti", "client_id", "scope", "tenant_id")
    },
    "iss": {"iss": "https://localhost"},
    "aud": {"aud": "https://another.example"},
    "sub": {"sub": "a\nb"},
    "client_id": {"client_id": ""},
    "jti": {"jti": "x" * 513},
    "over": {"iat": 1, "exp": 60},
    "to come": {"iat": 2**40, "exp": 2**40 + 60},
    "not before": {"nbf": 2**40},
    "too old": {"exp": int(time.time()) + 86_400},
    "an unknown scope": {"scope": "jobs:read openid"},
    "two spaces": {"scope": "jobs:read  jobs:submit"},
    "a tenant that is not mapped": {"tenant_id": "acme"},
    "forged": {"key": SigningKey("r", "RS256")},
}


def test_c8_each_broken_rule_is_401(site: Site) -> None:
    assert site.whoami(site.issuer.token()).status == 200
    with closing(site.connect()) as connection:
        for name, changes in BROKEN.items():
            token = site.issuer.token(**changes)
            answer = site.call("GET", "/v1/whoami", token, connection=connection)
            assert (answer.status, answer.code) == (401, "invalid_api_key"), name
            assert answer.headers["www-authenticate"] == f'{PLAIN}, error="invalid_token"'
            assert set(answer.json["error"]) == {"code", "message", "request_id", "retryable"}


def test_c8_many_with_an_unknown_kid_cause_one_refresh_and_none_follows(site: Site) -> None:
    before = site.issuer.requests
    unknown = [site.issuer.token(header={"kid": f"unknown-{number}"}) for number in range(40)]
    site.issuer.delay = 0.3
    with ThreadPoolExecutor(20) as callers:
        answers = list(callers.map(site.whoami, unknown))
    site.issuer.delay = 0.0
    assert {(answer.status, answer.code) for answer in answers} == {(401, "invalid_api_key")}
    assert site.issuer.requests == before + 1
    new = site.issuer.add("new", "ES256")
    for _ in range(5):
        assert site.whoami(site.issuer.token("new", key=new)).status == 401
    assert site.issuer.requests == before + 1
    assert site.whoami(site.issuer.token("r")).status == 200


def test_9_the_document_names_the_provider(site: Site) -> None:
    answer = site.call("GET", "/.well-known/oauth-protected-resource")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json == {
        "resource": AUDIENCE,
        "authorization_servers": [site.issuer.url],
        "bearer_methods_supported": ["header"],
        "scopes_supported": [scope.value for scope in Scope],
        "resource_name": "Rookhold execution gateway",
    }


@pytest.mark.parametrize("count", [60, pytest.param(3000, marks=pytest.mark.soak)])
def test_c8_no_forged_token_is_anybodys(site: Site, count: int) -> None:
    seed = int(os.environ.get("ROOKHOLD_FAULT_SEED", "7"), 16)
    forger = Forger(Random(seed), site.issuer, [site.tokens["all"], site.legacy])
    with closing(site.connect()) as connection:
        for token in forger.forgeries(count):
            answer = site.call("GET", "/v1/whoami", token, connection=connection)
            assert (answer.status, answer.code) in {
                (401, "invalid_api_key"),
                (401, "invalid_authorization"),
            }, token
        assert (
            site.call("GET", "/v1/whoami", site.issuer.token(), connection=connection).status == 200
        )
    assert "Traceback" not in site.log()


def test_no_secret_is_in_the_log(site: Site) -> None:
    """Last in this file: the log has seen everything above, at its most talkative."""
    token = site.issuer.token()
    site.whoami(token)
    log = site.log()
    assert "/v1/whoami" in log
    secrets = [*site.tokens.values(), site.legacy, token, token.split(".")[2]]
    secrets += [entry.digest_hmac_sha256 for entry in site.keeper.entries()]
    secrets.append((site.file.parent / "pepper").read_text().strip())
    assert not [secret for secret in secrets if secret in log]
    assert os.fspath(site.file) not in log
