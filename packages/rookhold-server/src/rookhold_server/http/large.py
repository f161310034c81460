"""Answers that hold large columns in memory: a slot each, from before the read to the last byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rookhold_server.http.call import JSON

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rookhold_server.http.call import Call
    from rookhold_server.http.services import Services


class Large(Struct, frozen=True, kw_only=True):
    status: int = 200
    body: bytes
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


async def respond_large(
    call: Call, services: Services, read: Callable[[], Awaitable[Large]]
) -> None:
    """`read` is called once the slot is held; the slot goes back at the body's end or death.

    A write waits until the kernel has its chunk, so the end of `respond` is the end of the body.
    """
    async with services.pools.large_responses.hold(call.principal.tenant):
        large = await read()
        await call.respond(
            large.status, large.body, content_type=large.content_type, headers=large.headers
        )
