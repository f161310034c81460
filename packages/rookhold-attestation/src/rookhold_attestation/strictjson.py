"""A JSON reader that refuses whatever two readers could understand differently.

It keeps its own stack instead of recursing, so that no document can exhaust the interpreter's.
Numbers keep the difference between `1` and `1.0`: an integer token within 64 bits becomes an int,
every other number a float, `-0` included.
"""

import json
import math
import re
from typing import Final, NoReturn, cast

from . import profile, quickjson
from .errors import InvalidJsonError

Json = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"(-?(?:0|[1-9][0-9]*))((?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_LITERAL: Final = re.compile(r"null|true|false")
_LITERALS: Final[dict[str, bool | None]] = {"null": None, "true": True, "false": False}
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_STRING_READER: Final = json.JSONDecoder()  # used at a quote only, where it does not recurse
_INTEGER_DIGITS_MAX: Final = len(str(profile.U64_MAX)) + 1


def parse(data: bytes, document: str) -> Json:
    """Read one whole document; `document` is its name in errors.

    Raises InvalidJsonError, with line and column counted from 1 in characters.
    """
    return parse_text(decode_text(data, document), document)


def parse_text(text: str, document: str) -> Json:
    quick = quickjson.read(text)
    return read_carefully(text, document) if quick is None else cast("Json", quick[0])


def read_carefully(text: str, document: str) -> Json:
    """Do all of it here; whatever the quick reader takes, it takes in the same way."""
    return _Reader(text, document).read()


def decode_text(data: bytes, document: str) -> str:
    """Decode UTF-8; a byte-order mark stays in the text, where no value may begin with it."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        before = data[: exc.start].decode("utf-8")
        raise refusal(document, before, len(before), "a byte that is not UTF-8") from None


def refusal(document: str, text: str, offset: int, reason: str) -> InvalidJsonError:
    """Make the error for `offset` in `text`; `reason` must not hold anything that was read."""
    line_start = text.rfind("\n", 0, offset) + 1
    return InvalidJsonError(
        document=document,
        line=text.count("\n", 0, offset) + 1,
        column=offset - line_start + 1,
        reason=reason,
    )


class _Reader:
    def __init__(self, text: str, document: str) -> None:
        self._text = text
        self._document = document
        self._open: list[list[Json] | dict[str, Json]] = []
        self._keys: list[str] = []  # the member being read, for every open object

    def read(self) -> Json:
        position = self._skip(0)
        while True:
            value, position, complete = self._value(position)
            if not complete:
                continue
            done, position = self._close(value, position)
            if done is not None:
                if position != len(self._text):
                    self._refuse(position, "something follows the document")
                return done[0]

    def _value(self, position: int) -> tuple[Json, int, bool]:
        """Read a scalar or an empty container whole; of any other container only its opening."""
        match self._text[position : position + 1]:
            case '"':
                text, position = self._string(position)
                return text, position, True
            case "{":
                return self._open_object(position)
            case "[":
                self._nest(position)
                inside = self._skip(position + 1)
                if self._text.startswith("]", inside):
                    return [], inside + 1, True
                self._open.append([])
                return None, inside, False
            case _:
                scalar, position = self._scalar(position)
                return scalar, position, True

    def _open_object(self, position: int) -> tuple[Json, int, bool]:
        self._nest(position)
        inside = self._skip(position + 1)
        if self._text.startswith("}", inside):
            return {}, inside + 1, True
        members: dict[str, Json] = {}
        self._open.append(members)
        self._keys.append("")
        return None, self._key(inside, members), False

    def _close(self, value: Json, position: int) -> tuple[tuple[Json] | None, int]:
        """Put a finished value where it belongs; a tuple is returned once the root is finished."""
        while self._open:
            container = self._open[-1]
            position = self._skip(position)
            mark = self._text[position : position + 1]
            if isinstance(container, list):
                container.append(value)
                if mark == ",":
                    return None, self._skip(position + 1)
                if mark != "]":
                    self._refuse(position, "a comma or a closing bracket is missing")
            else:
                container[self._keys[-1]] = value
                if mark == ",":
                    return None, self._key(self._skip(position + 1), container)
                if mark != "}":
                    self._refuse(position, "a comma or a closing brace is missing")
                self._keys.pop()
            value = container
            self._open.pop()
            position += 1
        return (value,), self._skip(position)

    def _key(self, position: int, members: dict[str, Json]) -> int:
        if not self._text.startswith('"', position):
            self._refuse(position, "a member name is missing")
        name, end = self._string(position)
        if name in members:
            self._refuse(position, "a member name is repeated")
        # Reserves the name at once, so that it counts as present while its value is being read.
        members[name] = None
        self._keys[-1] = name
        end = self._skip(end)
        if not self._text.startswith(":", end):
            self._refuse(end, "a colon is missing")
        return self._skip(end + 1)

    def _string(self, position: int) -> tuple[str, int]:
        try:
            value, end = _STRING_READER.raw_decode(self._text, position)
        except json.JSONDecodeError as exc:
            self._refuse(min(exc.pos, len(self._text)), "a string is malformed")
        if not value.isascii() and _LONE_SURROGATE.search(value) is not None:
            self._refuse(position, "a string holds half of a surrogate pair")
        return value, end

    def _scalar(self, position: int) -> tuple[bool | int | float | None, int]:
        number = _NUMBER.match(self._text, position)
        if number is not None:
            return self._number(number[1], number[2], position), number.end()
        literal = _LITERAL.match(self._text, position)
        if literal is None:
            self._refuse(position, "a value is missing or malformed")
        return _LITERALS[literal[0]], literal.end()

    def _number(self, whole: str, rest: str, position: int) -> int | float:
        # The length test also keeps int() away from digit strings that it would be slow on.
        if not rest and whole != "-0" and len(whole) <= _INTEGER_DIGITS_MAX:
            integer = int(whole)
            if profile.I64_MIN <= integer <= profile.U64_MAX:
                return integer
        value = float(whole + rest)
        if math.isinf(value):
            self._refuse(position, "a number is too large")
        return value

    def _nest(self, position: int) -> None:
        if len(self._open) >= profile.JSON_NESTING_MAX:
            self._refuse(position, "values are nested too deeply")

    def _skip(self, position: int) -> int:
        space = _SPACE.match(self._text, position)
        return position if space is None else space.end()

    def _refuse(self, position: int, reason: str) -> NoReturn:
        raise refusal(self._document, self._text, position, reason)
