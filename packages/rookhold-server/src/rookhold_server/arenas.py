"""How the C library keeps the memory of threads: in few places, so that what is freed is found."""

from __future__ import annotations

import ctypes
from typing import Final

_M_ARENA_MAX: Final = -8
ARENAS: Final = 2


def limit() -> None:
    """Keep glibc from giving threads arenas of their own, eight for each processor otherwise.

    What one thread frees another cannot use, and each read of a history may be in another thread.
    Our threads take turns anyway, so they seldom wait for each other here. Before any is started.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # glibc's; others keep memory in their own way
        mallopt(_M_ARENA_MAX, ARENAS)
