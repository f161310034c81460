"""The description of the API, for machines and for people."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from rookhold_server import __version__

if TYPE_CHECKING:
    from rookhold_server.http.call import Call
    from rookhold_server.http.openapi.page import Page
    from rookhold_server.http.services import Services

_SAFE: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)


async def document(call: Call, services: Services) -> None:
    del services
    await call.respond(200, _made()[0], headers=_SAFE)


async def page(call: Call, services: Services) -> None:
    del services
    made = _made()[1]
    await call.respond(
        200,
        made.body,
        content_type=b"text/html; charset=utf-8",
        headers=((b"content-security-policy", made.policy), *_SAFE),
    )


@cache
def _made() -> tuple[bytes, Page]:
    """Made when somebody first asks: most servers are never asked."""
    from rookhold_server.http.app import ROUTES
    from rookhold_server.http.openapi import build, render

    described = build(ROUTES, __version__)
    return msgspec.json.encode(described), render(described)
