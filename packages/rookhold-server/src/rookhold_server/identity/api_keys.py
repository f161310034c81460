"""The keys of ROOKHOLD_API_KEYS: parsed into digests, looked up in constant time."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import Final

from msgspec import Struct

from rookhold_server.errors import InvalidSettingError
from rookhold_server.identity.principal import Principal
from rookhold_server.identity.scopes import ALL_SCOPES
from rookhold_types.ids import valid_identity

VARIABLE: Final = "ROOKHOLD_API_KEYS"
PUBLIC_KEY: Final = "rookhold-dev-key"  # known to everybody, on purpose
LOCAL_TENANT: Final = "local"
_SHORT: Final = 16  # characters; below, a key can be guessed


class ApiKeys(Struct, frozen=True, kw_only=True):
    """Holds digests only, so that no printed form of the settings can show a key."""

    entries: tuple[tuple[bytes, Principal], ...]
    is_default: bool = False  # nothing was configured
    any_public: bool = False
    any_short: bool = False
    any_bare: bool = False  # an entry without its tenant

    def __repr__(self) -> str:
        return f"ApiKeys({len(self.entries)} of them)"  # a short key could be guessed by its digest

    def find(self, token: str) -> Principal | None:
        """Compare with every key, whichever matches, so that time tells nothing."""
        digest = sha256(token.encode()).digest()
        found = None
        for known, principal in self.entries:
            if hmac.compare_digest(known, digest):
                found = principal
        return found


def parse_api_keys(text: str | None, *, production: bool, others: bool = False) -> ApiKeys:
    """`tenant:key,...`; the first colon separates.

    Unset means the public key, in development and unless there are `others`: credentials that are
    configured in another way.
    """
    if text is None:
        public = not production and not others
        entries = (_entry(LOCAL_TENANT, PUBLIC_KEY),) if public else ()
        return ApiKeys(entries=entries, is_default=True, any_public=public)
    keys: dict[str, str] = {}
    any_bare = False
    for item in text.split(","):
        if not (entry := item.strip()):
            continue
        tenant, colon, key = entry.partition(":")
        if not colon:
            any_bare, tenant, key = True, LOCAL_TENANT, entry
        if not valid_identity(tenant):
            raise InvalidSettingError(VARIABLE, "an entry has a blank or malformed tenant")
        if not key or not all("!" <= character <= "~" for character in key):
            raise InvalidSettingError(
                VARIABLE, "an entry has a blank key or one no header can hold"
            )
        if key in keys:
            raise InvalidSettingError(VARIABLE, "a key is given twice")
        keys[key] = tenant
    if not keys:
        raise InvalidSettingError(VARIABLE, "holds no usable entry")
    return ApiKeys(
        entries=tuple(_entry(tenant, key) for key, tenant in keys.items()),
        any_public=PUBLIC_KEY in keys,
        any_short=any(len(key) < _SHORT for key in keys),
        any_bare=any_bare,
    )


def _entry(tenant: str, key: str) -> tuple[bytes, Principal]:
    principal = Principal(
        tenant=tenant,
        principal_id=f"legacy:{tenant}",
        credential_id=None,
        auth_method="api_key",
        scopes=ALL_SCOPES,
        expires_at_ms=None,
    )
    return sha256(key.encode()).digest(), principal
