"""Where traces go, if anywhere: the variables of the OpenTelemetry export."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from rookhold_server.config import values
from rookhold_server.config.values import Hidden, MalformedValueError
from rookhold_server.errors import RequiredSettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ENDPOINT: Final = "ROOKHOLD_OTEL_ENDPOINT"
HEADERS: Final = "ROOKHOLD_OTEL_HEADERS"
SAMPLE: Final = "ROOKHOLD_OTEL_SAMPLE_PERCENT"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+)=([!-+\--~](?:[ -+\--~]*[!-+\--~])?)")


class TracingSettings(Struct, frozen=True, kw_only=True):
    endpoint: str
    header_texts: Hidden  # `name=value,...`
    sample_percent: int

    @property
    def headers(self) -> Mapping[str, str]:
        return _headers(self.header_texts.text) if self.header_texts.text else {}


def endpoint(text: str) -> str:
    """An address that spans may be sent to: over TLS, or to this host."""
    rule = "must be an https URL, or an http one of this host, without user, query or fragment"
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise MalformedValueError(rule) from None
    plain = parts.scheme == "http" and host in _LOOPBACK
    extra = parts.username or parts.password or "?" in text or "#" in text
    if not host or extra or not (plain or parts.scheme == "https") or not text.isprintable():
        raise MalformedValueError(rule)
    return text


def header_texts(text: str) -> Hidden:
    _headers(text)
    return Hidden(text)


def _headers(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in text.split(","):
        match = _HEADER.fullmatch(item.strip(" "))
        if match is None or (name := match[1].lower()) in found:
            raise MalformedValueError("must be name=value,... with each name once")
        found[name] = match[2]
    return found


PARSERS: Final[Mapping[str, Callable[[str], Any]]] = MappingProxyType(
    {ENDPOINT: endpoint, HEADERS: header_texts, SAMPLE: values.integer(1, 100)}
)


def read_tracing(value: Callable[[str, Any], Any]) -> TracingSettings | None:
    """`value` returns a parsed variable or the default; None where no endpoint is named."""
    where: str | None = value(ENDPOINT, None)
    headers: Hidden | None = value(HEADERS, None)
    percent: int | None = value(SAMPLE, None)
    if where is None:
        for name, given in ((HEADERS, headers), (SAMPLE, percent)):
            if given is not None:
                raise RequiredSettingError(ENDPOINT, f"needed with {name}")
        return None
    return TracingSettings(
        endpoint=where, header_texts=headers or Hidden(""), sample_percent=percent or 100
    )
