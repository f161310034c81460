"""From the Authorization header to a principal, or to a 401 that tells as little as it can."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

from rookhold_server.refusal import Refusal

if TYPE_CHECKING:
    from rookhold_server.identity.principal import Principal

_HEADER_BYTES_MAX: Final = 16 * 1024
_BEARER: Final = re.compile(rb"bearer ([\x21-\x7e]+)", re.IGNORECASE)

# A look-up is one kind of credential; they are asked in order until one knows the token. One that
# raises the refusal ends the search: the token was of its kind, and nobody else may take it.
Lookup = Callable[[str], "Principal | None"]
# Access tokens come last, and may have to wait for the keys of their issuer.
AccessTokens = Callable[[str], Awaitable["Principal | None"]]


class Authenticator:
    def __init__(
        self, lookups: Iterable[Lookup], access_tokens: AccessTokens | None = None
    ) -> None:
        self._lookups = tuple(lookups)
        self._access_tokens = access_tokens

    async def authenticate(self, headers: Iterable[tuple[bytes, bytes]]) -> Principal:
        """Refusal `missing_api_key`, `invalid_authorization` or `invalid_api_key`."""
        given = [value for name, value in headers if name == b"authorization"]
        if not given:
            raise Refusal("missing_api_key")
        match = _BEARER.fullmatch(given[0]) if len(given) == 1 else None
        if match is None or len(given[0]) > _HEADER_BYTES_MAX:
            raise Refusal("invalid_authorization")
        token = match[1].decode("ascii")
        for lookup in self._lookups:
            if (principal := lookup(token)) is not None:
                return principal
        if self._access_tokens is None or token.count(".") != 2:
            raise Refusal("invalid_api_key")
        if (principal := await self._access_tokens(token)) is None:
            raise Refusal("invalid_api_key")
        return principal
