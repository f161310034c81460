"""Keeps big values from holding up the loop: what may take milliseconds runs in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from rookhold_types.jobs import JobSpec

R = TypeVar("R")

LARGE_CHARS: Final = 128 * 1024  # below it, the hop to a thread costs more than the work


def spec_is_large(spec: JobSpec) -> bool:
    files = sum(len(file.content_base64) for file in spec.files)
    return len(spec.code) + len(spec.stdin or "") + files > LARGE_CHARS


async def away(work: Callable[[], R], *, large: bool) -> R:
    """Return what `work` returns; pure work only, for its thread may outlive a cancelled caller."""
    return await anyio.to_thread.run_sync(work) if large else work()
