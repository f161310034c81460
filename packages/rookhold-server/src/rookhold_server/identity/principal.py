"""The caller, as authentication found them."""

from __future__ import annotations

from msgspec import Struct

from rookhold_server.identity.scopes import Scope


class Principal(Struct, frozen=True, kw_only=True):
    """Belongs to exactly one tenant; `scopes` is all the authority there is."""

    tenant: str
    principal_id: str
    credential_id: str | None
    auth_method: str
    scopes: frozenset[Scope]
    expires_at_ms: int | None
    verifier: str | None = None  # which one proved it; with another it is another credential
