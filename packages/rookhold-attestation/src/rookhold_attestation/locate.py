"""Where in a JSON text a value stands, for errors about documents that are well-formed."""

import json
import re
from typing import Final

Path = tuple[str | int, ...]

_TOKEN: Final = re.compile(r'[\[\]{},:]|"[^"\\]*(?:\\.[^"\\]*)*"|[^\[\]{},:"\s]+')


class _Level:
    """One open container; `place` is the member or element that is being read."""

    def __init__(self, *, is_object: bool) -> None:
        self.is_object = is_object
        self.place: str | int | None = None if is_object else 0

    def advance(self) -> None:
        self.place = self.place + 1 if isinstance(self.place, int) else None


def locate(text: str, path: Path) -> int:
    """Return the offset of the value at `path` in a text that `strictjson` has accepted."""
    levels: list[_Level] = []
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "}" | "]":
                levels.pop()
            case ",":
                levels[-1].advance()
            case ":":
                pass
            case mark if levels and levels[-1].place is None:
                levels[-1].place = json.loads(mark)
            case mark:
                # The depth first: a document may hold a million values below a hundred levels.
                if len(levels) == len(path) and path == tuple(level.place for level in levels):
                    return token.start()
                if mark in "{[":
                    levels.append(_Level(is_object=mark == "{"))
    return 0
