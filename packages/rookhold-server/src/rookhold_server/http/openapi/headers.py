"""The headers of every answer: which are always there, and which sometimes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rookhold_types.codes import ERRORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rookhold_server.http.gate import Endpoint
    from rookhold_server.http.openapi.meaning import Answer

_HEADERS: Final[Mapping[str, Any]] = {
    "x-request-id": {
        "description": "Made here for this request; the log knows it by this.",
        "schema": {"type": "string", "format": "uuid"},
    },
    "cache-control": {
        "description": "No answer about a tenant is to be kept.",
        "schema": {"const": "no-store"},
    },
    "x-ratelimit-limit": {
        "description": "Requests of a tenant in a minute.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "x-ratelimit-remaining": {
        "description": "How many of them are left in this one.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "www-authenticate": {
        "description": "Which credential is asked for, and what was wrong with the one given.",
        "schema": {"type": "string", "pattern": '^Bearer realm="rookhold'},
    },
    "location": {"description": "The job's path.", "schema": {"type": "string"}},
    "idempotency-replayed": {
        "description": "Whether an earlier request of this key is answered.",
        "schema": {"enum": ["true", "false"]},
    },
    "x-content-sha256": {
        "description": "The digest of the body.",
        "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    },
    "retry-after": {"description": "Whole seconds.", "schema": {"type": "integer", "minimum": 1}},
}
# Of the API group: on every answer; and on those to requests that the rate limit let pass.
_UNCACHED: Final = ("x-request-id", "cache-control")
_COUNTED: Final = ("x-ratelimit-limit", "x-ratelimit-remaining")
_LIMITED: Final = "rate_limit_exceeded"  # the limiter's own answer, on which they are not
_UNAUTHENTICATED: Final = 401
_CHALLENGED: Final = (_UNAUTHENTICATED, 403)
_FAULT: Final = 500  # anywhere, also before the limiter


def success_headers(endpoint: Endpoint, answer: Answer) -> dict[str, Any]:
    guarded = () if endpoint.scope is None else _COUNTED
    return _described((*_first(endpoint), *guarded, *answer.headers))


def failure_headers(endpoint: Endpoint, status: int, codes: list[str]) -> dict[str, Any]:
    always, sometimes = list(_first(endpoint)), list[str]()
    if status in _CHALLENGED:
        always.append("www-authenticate")
    later = [ERRORS[code].retry_after is not None or code == _LIMITED for code in codes]
    if any(later):
        (always if all(later) else sometimes).append("retry-after")
    if endpoint.scope is not None and status != _UNAUTHENTICATED:
        (sometimes if _LIMITED in codes or status == _FAULT else always).extend(_COUNTED)
    return _described(always, sometimes)


def _first(endpoint: Endpoint) -> tuple[str, ...]:
    return _UNCACHED[:1] if endpoint.scope is None else _UNCACHED


def _described(always: Iterable[str], sometimes: Iterable[str] = ()) -> dict[str, Any]:
    described = {name: {**_HEADERS[name], "required": True} for name in always}
    return described | {name: _HEADERS[name] for name in sometimes}
