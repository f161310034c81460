"""The routes of the governance extra on a server that has not got it: they exist, and say so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rookhold_server.refusal import Refusal

if TYPE_CHECKING:
    from rookhold_server.http.call import Call
    from rookhold_server.http.services import Services

# What comes after `/v1/` in all of its paths.
ROOTS: Final = frozenset(
    {
        "agent-sessions",
        "approvals",
        "charters",
        "chronicle",
        "citadels",
        "cohorts",
        "conclave",
        "policy",
        "readiness",
        "runs",
        "schedules",
        "snapshots",
    }
)
_API: Final = "/v1/"


def is_governed(path: str) -> bool:
    return path.startswith(_API) and path.removeprefix(_API).partition("/")[0] in ROOTS


async def unavailable(call: Call, services: Services) -> None:
    del call, services
    raise Refusal("capability_unavailable")
