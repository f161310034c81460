"""Which gateway a command talks to, from ROOKHOLD_BASE_URL and ROOKHOLD_API_KEY."""

from __future__ import annotations

import contextlib
import os
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from rookhold import DEFAULT_BASE_URL, Rookhold, RookholdError

from .errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_GLANCE_SECONDS: Final = 0.5  # it is on this computer, or it is not worth waiting for

# Public on purpose: `rookhold dev` accepts it on loopback, and says so.
DEVELOPMENT_KEY: Final = "rookhold-dev-key"


@dataclass(frozen=True, slots=True)
class Target:
    """A gateway's address and the key for it."""

    base_url: str
    api_key: str | None = field(repr=False)

    @property
    def settings(self) -> str:
        """Both variables, as one writes them before a command."""
        url, key = shlex.quote(self.base_url), shlex.quote(self.api_key or "")
        return f"ROOKHOLD_BASE_URL={url} ROOKHOLD_API_KEY={key}"

    def client(self) -> Rookhold:
        return Rookhold(self.base_url, self.api_key)


DEVELOPMENT: Final = Target(DEFAULT_BASE_URL, DEVELOPMENT_KEY)


def configured(environ: Mapping[str, str] = os.environ) -> Target | None:
    """Return the configured gateway, None if none is; half a configuration is refused."""
    base_url, api_key = environ.get("ROOKHOLD_BASE_URL"), environ.get("ROOKHOLD_API_KEY")
    if not base_url and not api_key:
        return None
    if not base_url or not api_key:
        missing = "ROOKHOLD_API_KEY" if base_url else "ROOKHOLD_BASE_URL"
        raise UsageError(f"{missing} is missing: set both for a gateway, or neither")
    return Target(base_url, api_key)


def existing(environ: Mapping[str, str] = os.environ) -> Target:
    """Return the configured gateway or, where none is, the one that `rookhold dev` starts."""
    return configured(environ) or DEVELOPMENT


def development_runs() -> bool:
    """Say whether `rookhold dev` serves on this computer, with the key that is public anyway."""
    glance = Rookhold(DEVELOPMENT.base_url, DEVELOPMENT.api_key, timeout=_GLANCE_SECONDS)
    with glance as client, contextlib.suppress(RookholdError):
        client.whoami()
        return True
    return False
