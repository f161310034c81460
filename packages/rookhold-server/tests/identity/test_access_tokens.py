"""Each rule of an access token, broken alone."""

import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import jwt
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from issuer import AUDIENCE, Provider, SigningKey, encoded, signed

from rookhold_server.config.oidc import OidcSettings
from rookhold_server.identity.oidc.access_tokens import AccessTokens
from rookhold_server.identity.oidc.keys import ProviderKeys

Check = Callable[[str], Any]
NOW = 1_790_000_000  # and it stays so, however long the tests take
ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")


@pytest.fixture(scope="module")
def issuer() -> Provider:
    provider = Provider(r="RS256", e="ES256", d="EdDSA")
    provider.clock = lambda: NOW
    return provider


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as running:
        yield running


def checker(issuer: Provider, portal: BlockingPortal, **changes: Any) -> Check:
    values = {
        "issuer": issuer.url,
        "audience": AUDIENCE,
        "jwks_url": f"{issuer.url}/keys",
        "tenants": {"org-1": "acme"},
        "tenant_claim": "tenant_id",
        "algorithms": ALGORITHMS,
        "ttl_seconds": 300,
        "max_age_seconds": 3600,
    }

    async def read() -> bytes:
        return issuer.jwks()

    async def check(token: str) -> Any:
        keys = ProviderKeys(read, ttl_seconds=300, clock=time.monotonic)
        await keys.open()
        tokens = AccessTokens(OidcSettings(**{**values, **changes}), keys, clock=lambda: NOW)
        return await tokens(token)

    return lambda token: portal.call(check, token)


@pytest.fixture(scope="module")
def check(issuer: Provider, portal: BlockingPortal) -> Check:
    return checker(issuer, portal)


@pytest.mark.parametrize("kid", ["r", "e", "d"])
def test_a_good_token_is_who_it_says(issuer: Provider, check: Check, kid: str) -> None:
    expires = NOW + 600
    found = check(issuer.token(kid, exp=expires, aud=["https://another.example", AUDIENCE]))
    assert (found.tenant, found.auth_method, found.credential_id) == ("acme", "jwt", None)
    assert found.scopes == {"jobs:submit", "jobs:read", "service:read"}
    assert found.expires_at_ms == expires * 1000
    named = b"\0".join([b"coop-oidc-principal-v1", issuer.url.encode(), b"user-7", b"agent"])
    assert found.principal_id == f"oidc:{hashlib.sha256(named).hexdigest()}"


def test_the_principal_is_the_same_for_every_token_and_another_for_every_client(
    issuer: Provider, check: Check
) -> None:
    one, again = check(issuer.token()), check(issuer.token("e"))
    assert one.principal_id == again.principal_id
    others = [check(issuer.token(client_id="other")), check(issuer.token(sub="user-8"))]
    assert len({one.principal_id, *(other.principal_id for other in others)}) == 3


GOOD: dict[str, dict[str, Any]] = {
    "the other type": {"header": {"typ": "application/at+jwt"}},
    "an unknown header member": {"header": {"x": 1}},
    "just ended": {"iat": NOW - 300, "exp": NOW - 30},
    "not begun yet by a clock": {"iat": NOW + 30, "nbf": NOW + 30, "exp": NOW + 60},
    "as old as it may be": {"iat": NOW, "exp": NOW + 3600},
    "times with a fraction": {"iat": NOW + 0.5, "exp": NOW + 60.25},
    "long names": {"sub": "s" * 512, "client_id": "é" * 256},
    "an unknown claim": {"groups": ["a"]},
    "one scope": {"scope": "metrics:read"},
    "a repeated scope": {"scope": "jobs:read jobs:read"},
}


@pytest.mark.parametrize("name", GOOD)
def test_a_token_is_taken_with(issuer: Provider, check: Check, name: str) -> None:
    assert check(issuer.token(**GOOD[name])) is not None


BAD: dict[str, dict[str, Any]] = {
    "typ: none": {"header": {"typ": None}},
    "typ: a JWT of another kind": {"header": {"typ": "JWT"}},
    "typ: in capitals": {"header": {"typ": "AT+JWT"}},
    "typ: of another type": {"header": {"typ": ["at+jwt"]}},
    "alg: none": {"header": {"alg": "none"}},
    "alg: not listed": {"header": {"alg": "RS512"}},
    "alg: of another family": {"header": {"alg": "ES256"}},
    "alg: of the same family": {"header": {"alg": "PS256"}},
    "alg: HMAC": {"header": {"alg": "HS256"}},
    "alg: missing": {"header": {"alg": None}},
    "alg: of another type": {"header": {"alg": 1}},
    "kid: missing": {"header": {"kid": None}},
    "kid: empty": {"header": {"kid": ""}},
    "kid: unknown": {"header": {"kid": "another"}},
    "kid: of another key": {"header": {"kid": "e"}},
    "kid: too long": {"header": {"kid": "x" * 129}},
    "kid: with a quote": {"header": {"kid": 'a"b'}},
    "kid: of another type": {"header": {"kid": 1}},
    **{f"header: {name}": {"header": {name: "x"}} for name in ("jku", "x5u", "zip", "enc")},
    "header: jwk": {"header": {"jwk": SigningKey("r", "ES256").jwk()}},
    "header: x5c": {"header": {"x5c": ["x"]}},
    "header: crit": {"header": {"crit": ["exp"]}},
    "header: a payload that is not encoded": {"header": {"b64": False}},
    **{
        f"{name}: missing": {name: None}
        for name in ("iss", "sub", "aud", "exp", "iat", "jti", "client_id", "scope", "tenant_id")
    },
    "iss: longer": {"iss": "https://issuer.example/"},
    "iss: a list": {"iss": ["https://issuer.example"]},
    "aud: another": {"aud": "https://another.example"},
    "aud: a part": {"aud": AUDIENCE[:-1]},
    "aud: others": {"aud": ["https://another.example"]},
    "aud: nobody": {"aud": []},
    "aud: of mixed types": {"aud": [AUDIENCE, 1]},
    "aud: an object": {"aud": {AUDIENCE: 1}},
    **{
        f"{name}: {what}": {name: value}
        for name in ("sub", "client_id", "jti")
        for what, value in {
            "empty": "",
            "too long": "x" * 513,
            "too long in bytes": "é" * 257,
            "with a line end": "a\nb",
            "with a null": "a\0b",
            "with a control character of Latin-1": "a\x85b",
            "a number": 7,
        }.items()
    },
    "exp: over": {"iat": NOW - 600, "exp": NOW - 61},
    "exp: text": {"exp": str(NOW + 60)},
    "exp: a truth": {"exp": True},
    "exp: negative": {"exp": -1},
    "exp: beyond every clock": {"exp": 10**18},
    "exp: beyond every number": {"exp": 10**400},
    "exp: at its issue": {"iat": NOW, "exp": NOW},
    "exp: before its issue": {"iat": NOW + 30, "exp": NOW + 20},
    "exp: too long after its issue": {"iat": NOW, "exp": NOW + 3601},
    "iat: to come": {"iat": NOW + 120, "exp": NOW + 180},
    "iat: text": {"iat": str(NOW)},
    "nbf: to come": {"nbf": NOW + 120},
    "nbf: text": {"nbf": "0"},
    "scope: empty": {"scope": ""},
    "scope: one unknown": {"scope": "jobs:read openid"},
    "scope: two spaces": {"scope": "jobs:read  jobs:submit"},
    "scope: a space at its end": {"scope": "jobs:read "},
    "scope: a line end": {"scope": "jobs:read\njobs:submit"},
    "scope: a list": {"scope": ["jobs:read"]},
    "tenant: unknown": {"tenant_id": "org-9"},
    "tenant: our own name for it": {"tenant_id": "acme"},
    "tenant: a list": {"tenant_id": ["org-1"]},
    "tenant: a number": {"tenant_id": 1},
}


@pytest.mark.parametrize("name", BAD)
def test_a_token_is_refused_for(issuer: Provider, check: Check, name: str) -> None:
    assert check(issuer.token(**BAD[name])) is None


def test_a_key_of_somebody_else_with_a_known_name_signs_nothing(
    issuer: Provider, check: Check
) -> None:
    for kid, name in (("r", "RS256"), ("e", "ES256"), ("d", "EdDSA")):
        assert check(issuer.token(kid, key=SigningKey(kid, name))) is None


def test_a_public_key_is_no_shared_secret(issuer: Provider, check: Check) -> None:
    """The classical confusion: HMAC with the bytes that everybody can fetch."""
    for kid in ("r", "e", "d"):
        public = issuer.keys[kid].private.public_key()
        secret = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        head = {"typ": "at+jwt", "kid": kid}
        for name in ("HS256", "RS256", "ES256", "EdDSA"):
            parts = [
                encoded(json.dumps(part).encode())
                for part in ({**head, "alg": name}, issuer.claims())
            ]
            mac = jwt.get_algorithm_by_name("HS256").sign(".".join(parts).encode(), secret)
            assert check(".".join([*parts, encoded(mac)])) is None


def test_a_token_that_was_changed_is_refused(issuer: Provider, check: Check) -> None:
    head, claims, signature = issuer.token().split(".")
    other = issuer.token(scope="metrics:read").split(".")
    for parts in (
        (head, other[1], signature),
        (head, claims, other[2]),
        (other[0], claims, signature[:-4]),
        (head, claims, ""),
        (head, claims, "AAAA"),
    ):
        assert check(".".join(parts)) is None
    assert check(f"{head}.{claims}.{signature}") is not None


def test_a_text_of_the_same_bytes_is_another_token(issuer: Provider, check: Check) -> None:
    """Of the texts that base64 readers take for the same bytes only one is taken."""
    token = issuer.token("d")
    head, claims, signature = token.split(".")
    last = signature[-1]
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    twin = alphabet[alphabet.index(last) ^ 1]  # 64 bytes leave four bits of the last one unused
    for text in (f"{head}.{claims}.{signature[:-1]}{twin}", f"{token}==", f"{token}\n"):
        assert check(text) is None


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_a_token_has_three_segments(issuer: Provider, check: Check, count: int) -> None:
    token = issuer.token()
    assert check(".".join([*token.split("."), *["e30"] * 4][: count + 1])) is None or count == 2


@pytest.mark.parametrize("part", ["[]", "null", '"x"', "{", '{"alg":"RS256","alg":"RS256"}', ""])
def test_header_and_claims_are_strict_objects(issuer: Provider, check: Check, part: str) -> None:
    key = issuer.keys["r"]
    head = {"typ": "at+jwt", "alg": "RS256", "kid": "r"}
    for parts in ([part, json.dumps(issuer.claims())], [json.dumps(head), part]):
        text = ".".join(encoded(half.encode()) for half in parts)
        mark = jwt.get_algorithm_by_name("RS256").sign(text.encode(), key.private)
        assert check(f"{text}.{encoded(mark)}") is None


def test_a_repeated_claim_is_refused_even_if_signed(issuer: Provider, check: Check) -> None:
    key = issuer.keys["r"]
    head = json.dumps({"typ": "at+jwt", "alg": "RS256", "kid": "r"})
    claims = json.dumps(issuer.claims())[:-1] + ', "tenant_id": "org-1"}'
    text = ".".join(encoded(half.encode()) for half in (head, claims))
    mark = jwt.get_algorithm_by_name("RS256").sign(text.encode(), key.private)
    assert check(f"{text}.{encoded(mark)}") is None


def test_the_settings_name_claim_algorithms_and_age(
    issuer: Provider, portal: BlockingPortal
) -> None:
    check = checker(issuer, portal, tenant_claim="org", algorithms=("ES256",), max_age_seconds=60)
    good = {"org": "org-1", "tenant_id": None, "exp": NOW + 60, "iat": NOW}
    assert check(issuer.token("e", **good)) is not None
    assert check(issuer.token("r", **good)) is None
    assert check(issuer.token("e", **{**good, "exp": NOW + 61})) is None


def test_why_is_told_to_the_log_and_holds_nothing_of_the_token(
    issuer: Provider, check: Check, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "rookhold_server")
    token = issuer.token(aud="https://another.example", sub="a-secret-subject")
    check(token)
    [record] = [r for r in caplog.records if r.name.endswith("access_tokens")]
    assert record.rule == "aud"  # type: ignore[attr-defined]
    shown = str(vars(record))
    for piece in ("a-secret-subject", "another.example", *token.split(".")):
        assert piece not in shown


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
HEADER = st.dictionaries(st.sampled_from(["alg", "typ", "kid", "b64", "crit", "cty", "x"]), JSON)
CLAIMS = st.dictionaries(st.sampled_from([*Provider().claims(), "nbf", "x"]), JSON)


@settings(max_examples=40, deadline=None)
@given(HEADER, CLAIMS)
def test_no_signed_token_breaks_the_checks(
    issuer: Provider, check: Check, header: dict[str, Any], claims: dict[str, Any]
) -> None:
    key = issuer.keys["e"]
    head = {"typ": "at+jwt", "alg": "ES256", "kid": "e"}
    for token in (
        signed({**head, **header}, issuer.claims(), key),
        signed(head, {**issuer.claims(), **claims}, key),
        signed(header, claims, key),
    ):
        found = check(token)
        assert found is None or found.tenant == "acme"


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=200))
def test_no_text_breaks_the_checks(check: Check, text: str) -> None:
    for token in (text, f"{text}.e30.e30", f"e30.{text}.", f"..{text}"):
        assert check(token) is None


def test_nothing_waits_without_need(issuer: Provider) -> None:
    """A token that is bad on its face asks nobody for keys."""
    asked = []

    class Keys(ProviderKeys):
        async def find(self, kid: str) -> None:
            asked.append(kid)

    async def never() -> bytes:
        raise AssertionError

    values = OidcSettings(
        issuer=issuer.url,
        audience=AUDIENCE,
        jwks_url=issuer.url,
        tenants={"org-1": "acme"},
        tenant_claim="tenant_id",
        algorithms=ALGORITHMS,
        ttl_seconds=60,
        max_age_seconds=60,
    )
    tokens = AccessTokens(
        values, Keys(never, ttl_seconds=60, clock=time.monotonic), clock=lambda: NOW
    )
    call: Callable[[str], Awaitable[Any]] = tokens
    for changes in (BAD["exp: over"], BAD["alg: HMAC"], BAD["iss: longer"]):
        assert anyio.run(call, issuer.token(**changes)) is None
    assert asked == []
