"""Which answer leads to which operation: what a client, or a tester of APIs, may do next."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_NEW: Final = "$response.body#/job_id"
_SAME: Final = "$request.path.job_id"
_OF_A_JOB: Final = (
    "getJob",
    "cancelJob",
    "replayEvents",
    "getResult",
    "getAttestation",
    "getResultArtifact",
    "mintStreamTicket",
    "streamEvents",
)


def _link(operation_id: str, **parameters: str) -> dict[str, Any]:
    return {"operationId": operation_id, "parameters": parameters}


# By the operation that answers; of its first success.
LINKS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "submitJob": {name: _link(name, job_id=_NEW) for name in _OF_A_JOB},
        "listJobs": {
            "nextPage": _link("listJobs", cursor="$response.body#/next_cursor"),
            "getJob": _link("getJob", job_id="$response.body#/items/0/job_id"),
        },
        "getJob": {"getResult": _link("getResult", job_id=_SAME)},
        "cancelJob": {"getJob": _link("getJob", job_id="$response.body#/job/job_id")},
        "replayEvents": {
            "nextPage": _link("replayEvents", job_id=_SAME, after="$response.body#/next_cursor")
        },
        "mintStreamTicket": {
            "streamEvents": _link("streamEvents", job_id=_SAME, ticket="$response.body#/ticket")
        },
    }
)
