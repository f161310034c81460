"""The settings of access tokens: whose they are, for whom, and which tenants they may name."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from rookhold_server.config.values import MalformedValueError, integer
from rookhold_server.errors import RequiredSettingError
from rookhold_types.ids import valid_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Set

ISSUER: Final = "ROOKHOLD_OIDC_ISSUER"
AUDIENCE: Final = "ROOKHOLD_OIDC_AUDIENCE"
JWKS_URL: Final = "ROOKHOLD_OIDC_JWKS_URL"
TENANT_MAP: Final = "ROOKHOLD_OIDC_TENANT_MAP"
TENANT_CLAIM: Final = "ROOKHOLD_OIDC_TENANT_CLAIM"
ALGORITHMS: Final = "ROOKHOLD_OIDC_ALGORITHMS"
TTL: Final = "ROOKHOLD_OIDC_JWKS_TTL_SECONDS"
MAX_AGE: Final = "ROOKHOLD_OIDC_MAX_TOKEN_AGE_SECONDS"
MANDATORY: Final = (ISSUER, AUDIENCE, JWKS_URL, TENANT_MAP)

# With a shared secret this server could make the tokens that it checks: so there is none of those.
ASYMMETRIC: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512"),
    "EdDSA",
)
# Claims with a meaning of their own (RFC 7519, section 4.1; RFC 9068, section 2.2).
REGISTERED: Final = frozenset(
    {
        *("iss", "sub", "aud", "exp", "nbf", "iat", "jti"),
        *("client_id", "scope", "auth_time", "acr", "amr"),
    }
)

_URL_CHARACTERS_MAX: Final = 2048
_VISIBLE: Final = re.compile(r"[!-~]+")
_CLAIM: Final = re.compile(r"[A-Za-z0-9.:/_-]{1,128}")


class OidcSettings(Struct, frozen=True, kw_only=True):
    issuer: str
    audience: str
    jwks_url: str
    tenants: dict[str, str]  # as the issuer calls them, as we do
    tenant_claim: str
    algorithms: tuple[str, ...]
    ttl_seconds: int
    max_age_seconds: int


def https_url(text: str) -> str:
    """Kept as it is written: issuers and audiences are compared character by character."""
    rule = "must be an https URL without user information, query and fragment"
    if len(text) > _URL_CHARACTERS_MAX or _VISIBLE.fullmatch(text) is None:
        raise MalformedValueError(rule)
    try:
        parts = urlsplit(text)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that is none
        raise MalformedValueError(rule) from None
    if not named or not text.startswith("https://") or set(text) & set("?#@\\"):
        raise MalformedValueError(rule)
    return text


def tenant_map(text: str) -> dict[str, str]:
    """`external=internal,...`; several external names may mean one tenant."""
    rule = "must be external=internal,... with each external name once"
    tenants: dict[str, str] = {}
    for item in text.split(","):
        external, equals, internal = item.strip().partition("=")
        if not equals or "=" in internal or external in tenants:
            raise MalformedValueError(rule)
        if not valid_identity(external) or not valid_identity(internal):
            raise MalformedValueError(rule)
        tenants[external] = internal
    return tenants


def tenant_claim(text: str) -> str:
    if _CLAIM.fullmatch(text) is None or text in REGISTERED:
        raise MalformedValueError("must be 1 to 128 of A-Za-z0-9.:/_- and no registered claim")
    return text


def algorithms(text: str) -> tuple[str, ...]:
    """Asymmetric ones only; each once, in the order given."""
    names = tuple(item.strip() for item in text.split(","))
    if not set(names) <= set(ASYMMETRIC) or len(set(names)) != len(names):
        raise MalformedValueError("must be a list, without repetition, of " + ", ".join(ASYMMETRIC))
    return names


PARSERS: Final[Mapping[str, Callable[[str], Any]]] = MappingProxyType(
    {
        ISSUER: https_url,
        AUDIENCE: https_url,
        JWKS_URL: https_url,
        TENANT_MAP: tenant_map,
        TENANT_CLAIM: tenant_claim,
        ALGORITHMS: algorithms,
        TTL: integer(60, 3600),
        MAX_AGE: integer(60, 86_400),
    }
)


def read_oidc(given: Set[str], value: Callable[[str, Any], Any]) -> OidcSettings | None:
    """Any of the variables turns access tokens on, and then four of them are needed."""
    if not given & PARSERS.keys():
        return None
    for name in MANDATORY:
        if name not in given:
            raise RequiredSettingError(name, "needed as soon as any ROOKHOLD_OIDC_* is set")
    return OidcSettings(
        issuer=value(ISSUER, None),
        audience=value(AUDIENCE, None),
        jwks_url=value(JWKS_URL, None),
        tenants=value(TENANT_MAP, None),
        tenant_claim=value(TENANT_CLAIM, "tenant_id"),
        algorithms=value(ALGORITHMS, ("RS256", "ES256", "EdDSA")),
        ttl_seconds=value(TTL, 300),
        max_age_seconds=value(MAX_AGE, 3600),
    )
