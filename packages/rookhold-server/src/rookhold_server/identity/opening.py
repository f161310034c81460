"""Everything that tells who is calling, opened from the settings and followed while serving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from rookhold_server.identity.authentication import AccessTokens, Authenticator, Lookup
from rookhold_server.identity.live_credentials import LiveCredentials
from rookhold_types.clock import now_ms

if TYPE_CHECKING:
    from rookhold_server.config.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Identity:
    authenticator: Authenticator
    credentials: LiveCredentials | None

    def reload(self) -> None:
        """Read again what can be read again."""
        if self.credentials is not None:
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
        )
        lookups.append(credentials.lookup)
    lookups.append(settings.api_keys.find)
    access_tokens: AccessTokens | None = None
    return Identity(
        authenticator=Authenticator(lookups, access_tokens), credentials=credentials
    )
