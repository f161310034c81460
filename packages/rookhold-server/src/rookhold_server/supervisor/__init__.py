"""The root process of a gateway that serves without root.

It starts the server under `ROOKHOLD_USER` and, when that asks, the launcher under root. It holds
neither database nor key, opens no listener, reads no request, and does nothing else that it is
asked. What takes privileges to find out is found out by a short process of its own, `survey`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

USER: Final = "ROOKHOLD_USER"
DESCRIPTOR: Final = "ROOKHOLD_SUPERVISOR_FD"  # of the server, by which it reaches its supervisor


def wanted(environ: Mapping[str, str]) -> bool:
    """Say whether a gateway with these variables starts with this root process."""
    return os.geteuid() == 0 and bool(environ.get(USER))
