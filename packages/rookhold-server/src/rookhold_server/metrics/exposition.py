"""How metrics are told: plain text, or OpenMetrics where the asker prefers it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from prometheus_client.exposition import generate_latest as generate_text
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

TEXT: Final = b"text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS: Final = b"application/openmetrics-text; version=1.0.0; charset=utf-8"
_ITEM: Final = re.compile(r"\s*([^\s;,]+)\s*((?:;[^,]*)?)")
_QUALITY: Final = re.compile(r";\s*q\s*=\s*([01](?:\.[0-9]{0,3})?)\s*(?:;|$)", re.IGNORECASE)
_VERSION: Final = re.compile(r";\s*version\s*=\s*\"?([^\s;\"]+)\"?", re.IGNORECASE)


def render(registry: CollectorRegistry, accept: str | None) -> tuple[bytes, bytes]:
    """Return content type and body for an `Accept` header."""
    if wants_openmetrics(accept):
        return OPENMETRICS, generate_openmetrics(registry)  # type: ignore[no-untyped-call]
    return TEXT, generate_text(registry)


def wants_openmetrics(accept: str | None) -> bool:
    """Whether OpenMetrics 1.0.0 is named, and no less wanted than plain text or anything."""
    ours = others = 0.0
    for item in (accept or "").split(","):
        if (match := _ITEM.fullmatch(item)) is None:
            continue
        media_type, parameters = match[1].lower(), match[2]
        quality = float(found[1]) if (found := _QUALITY.search(parameters)) else 1.0
        if media_type == "application/openmetrics-text":
            version = _VERSION.search(parameters)
            if version is None or version[1] == "1.0.0":
                ours = max(ours, quality)
        elif media_type in ("text/plain", "*/*"):
            others = max(others, quality)
    return ours > 0 and ours >= others
