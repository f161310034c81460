"""Where the listener is, and whether anybody but this host can reach it."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from msgspec import Struct

from rookhold_server.config.values import MalformedValueError

_RULE: Final = "must be an IP literal or localhost, a colon, and a port from 0 to 65535"
_SHAPE: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<four>[0-9.]+)|(?P<name>localhost)):(?P<port>[0-9]{1,5})",
    re.ASCII,
)


class Address(Struct, frozen=True):
    """An IP literal and a port; port 0 lets the kernel choose."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return ipaddress.ip_address(self.host).is_loopback


def parse_address(text: str) -> Address:
    match = _SHAPE.fullmatch(text)
    if match is None or int(match["port"]) > 65535:
        raise MalformedValueError(_RULE)
    host = "127.0.0.1" if match["name"] else match["six"] or match["four"]
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise MalformedValueError(_RULE) from None
    return Address(host, int(match["port"]))
