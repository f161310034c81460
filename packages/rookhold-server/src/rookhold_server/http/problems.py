"""The one shape of every error answer."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from rookhold_server.identity.challenges import challenge
from rookhold_types.codes import ERRORS, ErrorFact
from rookhold_types.ids import new_request_id
from rookhold_types.views import ErrorBody, ErrorMember
from rookhold_types.wire import encode

if TYPE_CHECKING:
    from rookhold_types.errors import RookholdError

Headers = list[tuple[bytes, bytes]]

MALFORMED_REQUEST: Final = "malformed_request"

# Codes of this wheel alone: bytes that never became a request, so that no route can have sent them.
TRANSPORT_ERRORS: Final = MappingProxyType(
    {
        MALFORMED_REQUEST: ErrorFact(
            status=400, retryable=False, retry_after=None, message="This is not a request."
        )
    }
)


def problem(error: RookholdError, request_id: str) -> tuple[int, Headers, bytes]:
    """Status, headers of its own and body of a refusal whose code is in the table."""
    fact = ERRORS[error.code]
    headers: Headers = []
    after = error.detail.get("retry_after", fact.retry_after)
    if after is not None:
        headers.append((b"retry-after", b"%d" % int(after)))
    scope = error.detail.get("scope")
    if (text := challenge(error.code, None if scope is None else str(scope))) is not None:
        headers.append((b"www-authenticate", text))
    if (allow := error.detail.get("allow")) is not None:
        headers.append((b"allow", str(allow).encode()))
    return fact.status, headers, _envelope(error.code, str(error), request_id, fact)


def internal_error(request_id: str) -> tuple[int, bytes]:
    """Says nothing about what happened; the log does, under the request id."""
    fact = ERRORS["internal_error"]
    return fact.status, _envelope("internal_error", fact.message, request_id, fact)


def malformed_request(message: str | None = None) -> tuple[Headers, bytes]:
    """Headers and body for what the transport refuses; the status is the parser's."""
    fact = TRANSPORT_ERRORS[MALFORMED_REQUEST]
    request_id = new_request_id()
    return _alone(
        request_id, _envelope(MALFORMED_REQUEST, message or fact.message, request_id, fact)
    )


def internal_answer() -> tuple[Headers, bytes]:
    """Headers and body for a request whose application ended without an answer."""
    request_id = new_request_id()
    return _alone(request_id, internal_error(request_id)[1])


def _alone(request_id: str, body: bytes) -> tuple[Headers, bytes]:
    """Headers of an answer that no call stands behind."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", request_id.encode()),
        (b"cache-control", b"no-store"),
    ]
    return headers, body


def _envelope(code: str, message: str, request_id: str, fact: ErrorFact) -> bytes:
    member = ErrorMember(
        code=code, message=message, request_id=request_id, retryable=fact.retryable
    )
    return encode(ErrorBody(error=member))
