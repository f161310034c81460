"""How the text of one variable becomes a value; a text that does not is refused by its rule."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from rookhold_types.ids import valid_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "false", "no", "off"})
_DIGITS: Final = re.compile(r"[0-9]{1,20}", re.ASCII)
_SHA256: Final = re.compile(r"[0-9A-Fa-f]{64}")
_TOKEN_MIN: Final = 16
_ACCOUNT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,255}")
LAST_ID: Final = 4_294_967_294  # of uids and gids; to the kernel the one above means "unchanged"


class MalformedValueError(ValueError):
    """Carries the rule that was broken, never the value."""


def boolean(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise MalformedValueError("must be one of 1, true, yes, on, 0, false, no, off")


def integer(low: int, high: int) -> Callable[[str], int]:
    """Base 10 digits without spaces or sign, within `low` and `high`."""

    def parse(text: str) -> int:
        if _DIGITS.fullmatch(text) is None or not low <= (number := int(text)) <= high:
            raise MalformedValueError(f"must be an integer from {low} to {high}")
        return number

    return parse


def choice(words: Mapping[str, T]) -> Callable[[str], T]:
    """One of `words`, exactly."""

    def parse(text: str) -> T:
        if text not in words:
            raise MalformedValueError("must be one of " + ", ".join(words))
        return words[text]

    return parse


def word_choice(words: Mapping[str, T]) -> Callable[[str], T]:
    """One of `words`, trimmed and in any case."""
    exact = choice(words)
    return lambda text: exact(text.strip().lower())


def path(text: str) -> Path:
    if "\0" in text:
        raise MalformedValueError("must be a path")
    return Path(text)


def absolute_path(text: str) -> Path:
    """Judged as written: `Path` would drop a `.` before anybody could refuse it."""
    if not text.startswith("/") or "\0" in text or {".", ".."} & set(text.split("/")):
        raise MalformedValueError("must be an absolute path without . and ..")
    return Path(text)


def sha256(text: str) -> str:
    """64 hex digits of either case, lowered."""
    if _SHA256.fullmatch(text) is None:
        raise MalformedValueError("must be 64 hexadecimal digits")
    return text.lower()


def account(text: str) -> str:
    """A name or a number, never root's; whether there is such an account is asked later."""
    number = _DIGITS.fullmatch(text) is not None
    if number and not 1 <= int(text) <= LAST_ID:
        raise MalformedValueError("must not be root, nor a number that no account can have")
    if text == "root" or not (number or _ACCOUNT.fullmatch(text)):
        raise MalformedValueError("must be the name or the number of an account other than root")
    return text


def executable(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise MalformedValueError("must name an executable")
    return text


class Hidden:
    """A secret that no printed form of what holds it shows."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return "<hidden>"


def token(text: str) -> Hidden:
    """Visible ASCII, at least 16 characters: short ones can be tried."""
    stripped = text.strip()
    if len(stripped) < _TOKEN_MIN or not all("!" <= c <= "~" for c in stripped):
        raise MalformedValueError("must be at least 16 visible ASCII characters")
    return Hidden(stripped)


def tenant_weights(text: str) -> dict[str, int]:
    """`tenant=weight,...`, weights 1 to 100, each tenant once."""
    rule = "must be tenant=weight,... with weights from 1 to 100 and each tenant once"
    weights: dict[str, int] = {}
    for item in text.split(","):
        tenant, equals, number = item.strip().rpartition("=")
        if not equals or not valid_identity(tenant) or tenant in weights:
            raise MalformedValueError(rule)
        if _DIGITS.fullmatch(number) is None or not 1 <= int(number) <= 100:
            raise MalformedValueError(rule)
        weights[tenant] = int(number)
    return weights
