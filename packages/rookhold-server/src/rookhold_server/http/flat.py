"""The flat shape of errors, which the client of the governance routes reads, in its own words."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from rookhold_server.http.problems import Headers, problem
from rookhold_types.codes import ERRORS

if TYPE_CHECKING:
    from rookhold_types.errors import RookholdError

_AUTHENTICATION: Final = ("authentication_required", "permission")
# Our code, then theirs with its reason. What is not here went wrong, and nothing more is known.
_WORDS: Final = MappingProxyType(
    {
        "missing_api_key": _AUTHENTICATION,
        "invalid_api_key": _AUTHENTICATION,
        "invalid_authorization": _AUTHENTICATION,
        "rate_limit_exceeded": ("rate_limited", "shed"),
        "capability_unavailable": ("capability_unavailable", "environment"),
    }
)


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """Only where it is certain that nothing was done."""

    refused: bool = True
    reason: str
    retryable: bool
    request_id: str
    message: str


class FlatError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    error: str
    code: str
    request_id: str
    refusal: Refused | None = None


def flat_problem(error: RookholdError, request_id: str) -> tuple[int, Headers, bytes]:
    """Status and headers as in the envelope, and a body of the other shape."""
    status, headers, _ = problem(error, request_id)
    message = str(error)
    words = _WORDS.get(error.code)
    if words is None:
        flat = FlatError(error=message, code="internal_error", request_id=request_id)
        return status, headers, msgspec.json.encode(flat)
    code, reason = words
    refused = Refused(
        reason=reason,
        retryable=ERRORS[error.code].retryable,
        request_id=request_id,
        message=message,
    )
    flat = FlatError(error=message, code=code, request_id=request_id, refusal=refused)
    return status, headers, msgspec.json.encode(flat)
