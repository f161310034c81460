"""Everything that tells who is calling, opened from the settings and followed while serving."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from rookhold_server.identity.authentication import AccessTokens, Authenticator, Lookup
from rookhold_server.identity.live_credentials import LiveCredentials
from rookhold_server.identity.scopes import ALL_SCOPES, in_order
from rookhold_server.identity.withdrawals import Withdrawals
from rookhold_types.clock import now_ms
from rookhold_types.service import ProtectedResourceView

if TYPE_CHECKING:
    from rookhold_server.config.oidc import OidcSettings
    from rookhold_server.config.settings import Settings

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Identity:
    authenticator: Authenticator
    credentials: LiveCredentials | None
    protected_resource: ProtectedResourceView | None  # None without an OpenID provider
    withdrawals: Withdrawals

    def reload(self) -> None:
        """Read again what can be read again."""
        if self.credentials is None:
            _log.info("asked to read credentials again, but there is no ROOKHOLD_CREDENTIALS_FILE")
        else:
            self.credentials.reload()

    async def watch(self) -> None:
        """Follow the credentials file; to be cancelled."""
        if self.credentials is None:
            await anyio.sleep_forever()
        else:
            await self.credentials.watch()


async def open_identity(settings: Settings) -> Identity:
    """Raises SettingError for files that are not to be used, and for keys that cannot be had."""
    credentials = None
    lookups: list[Lookup] = []
    if settings.credentials_file is not None and settings.pepper_file is not None:
        credentials = LiveCredentials(
            settings.credentials_file,
            settings.pepper_file,
            strict=settings.production,
            clock=now_ms,
            nobodys=None if settings.metrics_token is None else settings.metrics_token.text,
        )
        lookups.append(credentials.lookup)
    lookups.append(settings.api_keys.find)
    access_tokens: AccessTokens | None = None
    if settings.oidc is not None:
        from rookhold_server.identity.oidc.opening import open_access_tokens  # takes long to load

        access_tokens = await open_access_tokens(settings.oidc)
    return Identity(
        authenticator=Authenticator(lookups, access_tokens),
        credentials=credentials,
        protected_resource=None if settings.oidc is None else _protected_resource(settings.oidc),
        withdrawals=Withdrawals.never() if credentials is None else credentials.withdrawals,
    )


def _protected_resource(oidc: OidcSettings) -> ProtectedResourceView:
    return ProtectedResourceView(
        resource=oidc.audience,
        authorization_servers=(oidc.issuer,),
        scopes_supported=in_order(ALL_SCOPES),
    )
