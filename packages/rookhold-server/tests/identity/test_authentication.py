"""The header, and in which order a token is looked for."""

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookhold_server.identity.api_keys import parse_api_keys
from rookhold_server.identity.authentication import Authenticator
from rookhold_server.identity.principal import Principal
from rookhold_server.refusal import Refusal

KEYS = parse_api_keys("acme:a.legacy.key-of-acme,acme:rookhold_ci-1_" + "s" * 43, production=True)
STRUCTURED = "rookhold_ci-1_" + "s" * 43


def somebody(name: str) -> Principal:
    return Principal(
        tenant=name,
        principal_id=name,
        credential_id=None,
        auth_method="jwt",
        scopes=frozenset(),
        expires_at_ms=None,
    )


class Asked:
    """An authenticator that notes who was asked for a token."""

    def __init__(self, known: str = "h.p.s") -> None:
        self.of: list[str] = []
        self._known = known
        self.authenticator = Authenticator([self._structured, self._legacy], self._provider)

    def _structured(self, token: str) -> Principal | None:
        self.of.append("structured")
        if token.startswith("rookhold_"):
            raise Refusal("invalid_api_key")
        return None

    def _legacy(self, token: str) -> Principal | None:
        self.of.append("legacy")
        return KEYS.find(token)

    async def _provider(self, token: str) -> Principal | None:
        self.of.append("provider")
        return somebody("oidc") if token == self._known else None

    def __call__(self, *values: bytes) -> str:
        """Return the tenant, or the code of the refusal."""
        headers = [(b"authorization", value) for value in values]
        try:
            return anyio.run(self.authenticator.authenticate, headers).tenant
        except Refusal as refused:
            return refused.code


@pytest.mark.parametrize(
    ("token", "answer", "asked"),
    [
        (b"a.legacy.key-of-acme", "acme", ["structured", "legacy"]),
        (STRUCTURED.encode(), "invalid_api_key", ["structured"]),
        (b"h.p.s", "oidc", ["structured", "legacy", "provider"]),
        (b"h.p.x", "invalid_api_key", ["structured", "legacy", "provider"]),
        (b"h.p", "invalid_api_key", ["structured", "legacy"]),
        (b"h.p.s.x", "invalid_api_key", ["structured", "legacy"]),
        (b"nobody", "invalid_api_key", ["structured", "legacy"]),
    ],
)
def test_structured_credentials_come_first_then_keys_then_access_tokens(
    token: bytes, answer: str, asked: list[str]
) -> None:
    kinds = Asked()
    assert kinds(b"Bearer " + token) == answer
    assert kinds.of == asked


def test_without_a_provider_nobody_is_asked() -> None:
    alone = Authenticator([KEYS.find])
    with pytest.raises(Refusal) as caught:
        anyio.run(alone.authenticate, [(b"authorization", b"Bearer h.p.s")])
    assert caught.value.code == "invalid_api_key"


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ((), "missing_api_key"),
        ((b"",), "invalid_authorization"),
        ((b"Bearer h.p.s", b"Bearer h.p.s"), "invalid_authorization"),
        ((b"Bearer h.p.s ",), "invalid_authorization"),
        ((b"Bearer\th.p.s",), "invalid_authorization"),
        ((b"Bearer h.p.s\x7f",), "invalid_authorization"),
        ((b"Bearer " + b"x" * (16 * 1024 - 7),), "invalid_api_key"),
        ((b"Bearer " + b"x" * (16 * 1024 - 6),), "invalid_authorization"),
        ((b"BEARER h.p.s",), "oidc"),
    ],
)
def test_one_header_of_one_form(values: tuple[bytes, ...], answer: str) -> None:
    assert Asked()(*values) == answer


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.binary(max_size=60) | st.binary(max_size=60).map(b"Bearer ".__add__), max_size=2)
)
def test_no_header_breaks_it(values: list[bytes]) -> None:
    assert Asked()(*values) in {"missing_api_key", "invalid_authorization", "invalid_api_key"}
