"""Access tokens, ready to be checked: the provider has been asked for its keys once."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rookhold_server.config.oidc import JWKS_URL
from rookhold_server.errors import ProviderUnavailableError
from rookhold_server.identity.oidc.access_tokens import AccessTokens
from rookhold_server.identity.oidc.fetch import JwksSource, trust
from rookhold_server.identity.oidc.jwks import JwksError
from rookhold_server.identity.oidc.keys import ProviderKeys

if TYPE_CHECKING:
    from rookhold_server.config.oidc import OidcSettings


async def open_access_tokens(settings: OidcSettings) -> AccessTokens:
    """Raises ProviderUnavailableError if there are no keys to be had now."""
    source = JwksSource(settings.jwks_url, trust())
    keys = ProviderKeys(source.read, ttl_seconds=settings.ttl_seconds, clock=time.monotonic)
    try:
        await keys.open()
    except JwksError as exc:
        raise ProviderUnavailableError(JWKS_URL, f"no keys can be had there: {exc}") from None
    return AccessTokens(settings, keys, clock=time.time)
