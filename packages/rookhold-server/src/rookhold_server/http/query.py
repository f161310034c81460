"""Query parameters: which ones a route knows, and integers that are nothing but digits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from rookhold_server.refusal import Refusal

if TYPE_CHECKING:
    from rookhold_server.http.call import Call

_DIGITS: Final = re.compile(r"[0-9]{1,19}", re.ASCII)


class Query:
    """The parameters of one request; a repeated one is as wrong as a malformed one."""

    def __init__(self, call: Call) -> None:
        text = call.scope["query_string"].decode("latin-1")
        self._pairs = parse_qsl(text, keep_blank_values=True) if text else []

    def allow_only(self, *names: str) -> None:
        """Refusal `unknown_query_parameter`."""
        if any(name not in names for name, _ in self._pairs):
            raise Refusal("unknown_query_parameter")

    def text(self, name: str, *, refusal: str) -> str | None:
        found = [value for key, value in self._pairs if key == name]
        if len(found) > 1:
            raise Refusal(refusal)
        return found[0] if found else None

    def integer(self, name: str, *, low: int, high: int, default: int, refusal: str) -> int:
        """Refusal with the code `refusal` where it is not an integer from `low` to `high`."""
        text = self.text(name, refusal=refusal)
        if text is None:
            return default
        if _DIGITS.fullmatch(text) is None or not low <= (number := int(text)) <= high:
            raise Refusal(refusal)
        return number
