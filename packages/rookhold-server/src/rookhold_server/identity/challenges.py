"""The WWW-Authenticate text of a refusal."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

_PLAIN: Final = b'Bearer realm="rookhold"'
_INVALID_TOKEN: Final = _PLAIN + b', error="invalid_token"'

_BY_CODE: Final = MappingProxyType(
    {
        "missing_api_key": _PLAIN,
        "invalid_api_key": _INVALID_TOKEN,
        "invalid_stream_ticket": _INVALID_TOKEN,
        "invalid_metrics_token": b'Bearer realm="rookhold-metrics"',
        "invalid_authorization": _PLAIN + b', error="invalid_request"',
    }
)


def challenge(code: str, scope: str | None) -> bytes | None:
    """`scope` is the one that was missing; only `insufficient_scope` has one."""
    if code == "insufficient_scope":
        return _PLAIN + b', error="insufficient_scope", scope="%b"' % (scope or "").encode()
    return _BY_CODE.get(code)
