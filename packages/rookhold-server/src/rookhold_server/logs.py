"""One line per record on stderr: JSON for machines, compact for people. Ids and codes, no payloads.

An exception is logged as its type and the functions it went through: its text may quote what a user
wrote, and a file name would tell where the server lives.
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# What every record has; anything else on it came in through `extra`.
_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FRAMES: Final = 12
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
# What is being done: a request, or a job. Tasks and threads that are begun for it take it along.
_about: ContextVar[Mapping[str, str]] = ContextVar("rookhold_about", default=_NOTHING)


def configure(log_format: str, level: str) -> None:
    """Send the root logger to stderr; libraries speak up from warning on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else CompactLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("rookhold_server").setLevel(level.upper())
    for name in ("rookhold_store", "rookhold_exec"):
        logging.getLogger(name).setLevel(level.upper())


@contextmanager
def about(**facts: str) -> Iterator[None]:
    """Have every line that is written within bear these facts: the ids of what is being done."""
    before = _about.get()
    token = _about.set({**before, **facts})
    try:
        yield
    finally:
        _about.reset(token)


def add(**facts: str) -> None:
    """Have the lines still to come within the innermost `about` bear these facts too."""
    told = _about.get()
    if isinstance(told, dict):
        told.update(facts)


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts_ms": int(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_facts(record),
        }
        return msgspec.json.encode(line, enc_hook=str).decode()


class CompactLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        facts = "".join(f" {name}={_one_line(fact)}" for name, fact in _facts(record).items())
        message = _one_line(record.getMessage())
        return f"{clock} {record.levelname.lower():7} {message}{facts}"


def _facts(record: logging.LogRecord) -> Mapping[str, Any]:
    own = {name: fact for name, fact in vars(record).items() if name not in _STANDARD}
    facts = {**_about.get(), **own}
    if record.exc_info and (exc := record.exc_info[1]) is not None:
        facts["error"] = type(exc).__name__
        facts["at"] = _where(exc)
    return facts


def _where(exc: BaseException) -> list[str]:
    frames = traceback.walk_tb(exc.__traceback__)
    places = [
        f"{frame.f_globals.get('__name__', '?')}.{frame.f_code.co_name}:{line}"
        for frame, line in frames
    ]
    return places[-_FRAMES:]


def _one_line(value: object) -> str:
    """Keep a record on one line, whatever a value holds."""
    text = str(value)
    return text if text.isprintable() else repr(text)
