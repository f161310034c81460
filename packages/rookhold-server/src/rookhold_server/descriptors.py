"""Descriptors that a parent may hand over: one to tell it we are ready, one that ends with it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import msgspec

from rookhold_server.errors import InvalidSettingError

if TYPE_CHECKING:
    from rookhold_server.config.address import Address
    from rookhold_server.config.settings import Settings


def claim_descriptors(settings: Settings) -> None:
    """Keep them from every child; refuse one that is not open. Call before starting anything."""
    for variable, descriptor in (
        ("ROOKHOLD_READY_FD", settings.ready_fd),
        ("ROOKHOLD_LIFELINE_FD", settings.lifeline_fd),
        ("ROOKHOLD_SUPERVISOR_FD", settings.supervisor_fd),
    ):
        if descriptor is not None:
            try:
                os.set_inheritable(descriptor, False)
            except OSError:
                raise InvalidSettingError(variable, "is not an open descriptor") from None


def tell_ready(descriptor: int, address: Address) -> None:
    """Write one line and close; a parent that has gone is not our problem."""
    try:
        os.write(descriptor, msgspec.json.encode({"address": str(address)}) + b"\n")
    except OSError:
        return
    finally:
        os.close(descriptor)


async def parent_gone(descriptor: int) -> None:
    """Return at the end of file, which the parent's end makes, however it comes."""
    while True:
        await anyio.wait_readable(descriptor)
        if not os.read(descriptor, 4096):
            return
