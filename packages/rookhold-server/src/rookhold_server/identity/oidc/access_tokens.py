"""JWT access tokens: every rule of RFC 9068's profile as it is kept here, then the signature."""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import re
import unicodedata
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jwt import PyJWS
from jwt.exceptions import PyJWTError

from rookhold_server.identity.oidc.jwks import KID
from rookhold_server.identity.principal import Principal
from rookhold_server.identity.scopes import Scope
from rookhold_types.errors import InvalidJsonError
from rookhold_types.wire import decode_strict

if TYPE_CHECKING:
    from collections.abc import Callable

    from rookhold_server.config.oidc import OidcSettings
    from rookhold_server.identity.oidc.keys import ProviderKeys

_log = logging.getLogger(__name__)

LEEWAY_SECONDS: Final = 60
TYPES: Final = frozenset({"at+jwt", "application/at+jwt"})
# A token must neither bring its own key nor change what its bytes mean.
FORBIDDEN: Final = frozenset({"jku", "jwk", "x5u", "x5c", "crit", "enc", "zip"})
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_-]+")
_TEXT_BYTES_MAX: Final = 512
_LATEST: Final = 2**53 // 1000  # seconds; in milliseconds it must still be an exact number
_DOMAIN: Final = b"coop-oidc-principal-v1"


class _RefusedError(Exception):
    """Names the rule, for the log of somebody who sets this up; never a value."""


class _Header(NamedTuple):
    algorithm: str
    kid: str


class AccessTokens:
    """To be called with a token; tells who that is, or None for whatever reason."""

    def __init__(
        self, settings: OidcSettings, keys: ProviderKeys, *, clock: Callable[[], float]
    ) -> None:
        """`clock` is Unix time in seconds."""
        self._settings = settings
        self._keys = keys
        self._clock = clock
        self._scopes = {scope.value: scope for scope in Scope}
        self._signatures = PyJWS()

    async def __call__(self, token: str) -> Principal | None:
        try:
            return await self._check(token)
        except _RefusedError as exc:
            _log.debug("an access token was refused", extra={"rule": str(exc)})
            return None

    async def _check(self, token: str) -> Principal:
        """Everything that costs little comes first, so that only a likely token costs a key."""
        segments = token.split(".")
        if len(segments) != 3:
            raise _RefusedError("shape")
        header = self._header(_object(segments[0]))
        payload = _decoded(segments[1])
        _decoded(segments[2])
        principal = self._principal(_json(payload))
        key = await self._keys.find(header.kid)
        if key is None or not key.fits(header.algorithm):
            raise _RefusedError("key")
        try:
            verified = self._signatures.decode_complete(
                token, key.public, algorithms=[header.algorithm]
            )
        except (PyJWTError, ValueError, TypeError):
            raise _RefusedError("signature") from None
        if verified["payload"] != payload:
            raise _RefusedError("signature")
        return principal

    def _header(self, members: dict[str, Any]) -> _Header:
        algorithm, kid = members.get("alg"), members.get("kid")
        if FORBIDDEN & members.keys():
            raise _RefusedError("forbidden header member")
        if not isinstance(kind := members.get("typ"), str) or kind not in TYPES:
            raise _RefusedError("typ")
        if not isinstance(algorithm, str) or algorithm not in self._settings.algorithms:
            raise _RefusedError("alg")
        if not isinstance(kid, str) or KID.fullmatch(kid) is None:
            raise _RefusedError("kid")
        return _Header(algorithm, kid)

    def _principal(self, claims: dict[str, Any]) -> Principal:
        settings = self._settings
        if claims.get("iss") != settings.issuer:
            raise _RefusedError("iss")
        subject, client = _text(claims, "sub"), _text(claims, "client_id")
        _text(claims, "jti")
        if not _names(claims.get("aud"), settings.audience):
            raise _RefusedError("aud")
        expires = self._times(claims)
        scopes = self._granted(claims.get("scope"))
        external = claims.get(settings.tenant_claim)
        if not isinstance(external, str) or external not in settings.tenants:
            raise _RefusedError("tenant")
        return Principal(
            tenant=settings.tenants[external],
            principal_id=principal_id(settings.issuer, subject, client),
            credential_id=None,
            auth_method="jwt",
            scopes=scopes,
            expires_at_ms=int(expires * 1000),
        )

    def _times(self, claims: dict[str, Any]) -> float:
        """Check all of them and return the end."""
        now = self._clock()
        expires, issued = _instant(claims, "exp"), _instant(claims, "iat")
        if now >= expires + LEEWAY_SECONDS:
            raise _RefusedError("exp")
        if issued > now + LEEWAY_SECONDS:
            raise _RefusedError("iat")
        if "nbf" in claims and _instant(claims, "nbf") > now + LEEWAY_SECONDS:
            raise _RefusedError("nbf")
        if not issued < expires <= issued + self._settings.max_age_seconds:
            raise _RefusedError("age")
        return expires

    def _granted(self, text: object) -> frozenset[Scope]:
        names = text.split(" ") if isinstance(text, str) else [""]
        if not set(names) <= self._scopes.keys():
            raise _RefusedError("scope")
        return frozenset(self._scopes[name] for name in names)


def principal_id(issuer: str, subject: str, client: str) -> str:
    """Return a name that says nothing, and is the same for every token of this subject."""
    named = b"\0".join([_DOMAIN, issuer.encode(), subject.encode(), client.encode()])
    return f"oidc:{hashlib.sha256(named).hexdigest()}"


def _decoded(segment: str) -> bytes:
    """Return the bytes that have this text and no other one."""
    if _SEGMENT.fullmatch(segment) is None:
        raise _RefusedError("shape")
    try:
        data = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except (binascii.Error, ValueError):
        raise _RefusedError("shape") from None
    if base64.urlsafe_b64encode(data).rstrip(b"=") != segment.encode():
        raise _RefusedError("shape")
    return data


def _object(segment: str) -> dict[str, Any]:
    return _json(_decoded(segment))


def _json(data: bytes) -> dict[str, Any]:
    try:
        return decode_strict(data, dict[str, Any])
    except InvalidJsonError:
        raise _RefusedError("shape") from None


def _text(claims: dict[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not 1 <= len(value.encode()) <= _TEXT_BYTES_MAX:
        raise _RefusedError(name)
    if any(unicodedata.category(character) == "Cc" for character in value):
        raise _RefusedError(name)
    return value


def _instant(claims: dict[str, Any], name: str) -> float:
    """A NumericDate, which RFC 7519 allows to have a fraction."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LATEST:
        raise _RefusedError(name)
    return value


def _names(value: object, audience: str) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value) and audience in value
    return value == audience
