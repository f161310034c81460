"""Keys, budgets and scopes, without a server."""

import hmac

import pytest

from rookhold_server.identity import api_keys
from rookhold_server.identity.api_keys import parse_api_keys
from rookhold_server.identity.rate_limit import RateLimiter
from rookhold_server.identity.scopes import ALL_SCOPES, Scope, in_order
from rookhold_server.refusal import Refusal


def test_a_key_may_hold_colons_but_the_first_one_separates() -> None:
    keys = parse_api_keys("acme:a:b:c-long-enough-1", production=False)
    found = keys.find("a:b:c-long-enough-1")
    assert found is not None
    assert (found.tenant, found.principal_id) == ("acme", "legacy:acme")
    assert found.scopes == ALL_SCOPES


def test_a_bare_key_means_the_local_tenant_in_development() -> None:
    keys = parse_api_keys("a-long-enough-key-1", production=False)
    found = keys.find("a-long-enough-key-1")
    assert found is not None
    assert found.tenant == "local"
    assert keys.any_bare


def test_configured_keys_replace_the_public_one() -> None:
    keys = parse_api_keys("acme:a-long-enough-key-1", production=False)
    assert keys.find("rookhold-dev-key") is None
    assert not keys.any_public


def test_several_keys_of_one_tenant_are_that_tenant() -> None:
    keys = parse_api_keys("a:first-first-first-1,a:second-second-2", production=True)
    assert {keys.find(key).tenant for key in ("first-first-first-1", "second-second-2")} == {"a"}


def test_every_key_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    really = hmac.compare_digest

    def counting(known: bytes, given: bytes) -> bool:
        compared.append(known)
        return really(known, given)

    keys = parse_api_keys(
        "a:first-first-first-1,b:second-second-2,c:third-third-3", production=True
    )
    monkeypatch.setattr(api_keys.hmac, "compare_digest", counting)
    for token in ("first-first-first-1", "third-third-3", "nobody"):
        compared.clear()
        keys.find(token)
        assert len(compared) == 3


def test_scopes_are_reported_in_one_order() -> None:
    assert in_order(ALL_SCOPES) == (
        "jobs:submit",
        "jobs:read",
        "jobs:cancel",
        "service:read",
        "metrics:read",
    )
    assert in_order(frozenset({Scope.METRICS_READ, Scope.JOBS_READ})) == (
        "jobs:read",
        "metrics:read",
    )


@pytest.mark.parametrize(("second", "wait"), [(0.0, 60), (0.9, 60), (30.0, 30), (59.99, 1)])
def test_the_wait_is_to_the_next_utc_minute(second: float, wait: int) -> None:
    limiter = RateLimiter(1, lambda: 6000.0 + second)
    limiter.take("a")
    with pytest.raises(Refusal) as caught:
        limiter.take("a")
    assert caught.value.detail["retry_after"] == wait


def test_refused_requests_count_and_old_windows_are_forgotten() -> None:
    now = [0.0]
    limiter = RateLimiter(2, lambda: now[0])
    assert [limiter.take("a").remaining for _ in range(2)] == [1, 0]
    for tenant in ("b", "c", "d"):
        limiter.take(tenant)
    now[0] = 60.0
    assert limiter.take("a").remaining == 1
    assert len(limiter._used) == 1
