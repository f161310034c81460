"""Whether a key would travel readable over the open internet."""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable


def addresses_of(host: str) -> list[str]:
    """Resolve a name; an unknown one has no address."""
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None)]
    except OSError:
        return []


def is_public_plain_http(base_url: str, resolve: Callable[[str], list[str]] = addresses_of) -> bool:
    """Say whether `base_url` is plain HTTP to an address that others than the own network reach."""
    parts = urlsplit(base_url)
    if parts.scheme != "http" or not parts.hostname:
        return False
    try:
        found = [ipaddress.ip_address(parts.hostname)]
    except ValueError:
        found = [ipaddress.ip_address(text.partition("%")[0]) for text in resolve(parts.hostname)]
    return any(address.is_global for address in found)
