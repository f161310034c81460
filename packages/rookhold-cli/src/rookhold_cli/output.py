"""All that the command prints: results on stdout, everything about them on stderr.

Text that came from a gateway or a file is shown without control characters, so that it cannot
drive the terminal. Only a job's own output passes untouched, as it would from a local command.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import unicodedata
from typing import TYPE_CHECKING, Any, BinaryIO

from .errors import FilesError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import Console

_WIDEST = 10_000
_CONTROL = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def plain(text: str) -> str:
    """Return `text` with every control and invisible formatting character shown as a dot."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("·" if unicodedata.category(char) in _CONTROL else char for char in text)


def on_terminal() -> bool:
    """Say whether somebody watches stderr; only then is progress shown."""
    return sys.stderr is not None and sys.stderr.isatty()


def line(text: str = "") -> None:
    """Print one line of the answer on stdout."""
    with _reader_may_leave():
        print(text, flush=True)


def say(text: str) -> None:
    """Tell the user something on stderr, on a terminal or not."""
    print(f"rookhold: {plain(text)}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Print an unadorned line on stderr."""
    print(text, file=sys.stderr, flush=True)


def progress(text: str) -> None:
    """Tell how far things are; silent unless stderr is a terminal."""
    if on_terminal():
        shown = f"· {plain(text)}"
        note(shown if os.environ.get("NO_COLOR") else f"\033[2m{shown}\033[0m")


def as_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    line(json.dumps(value, ensure_ascii=not _speaks_utf8(), indent=2 if _watched() else None))


def raw(stream: str, data: bytes) -> None:
    """Pass a job's output on, byte for byte, to the stream it was written to."""
    target: BinaryIO = (sys.stderr if stream == "stderr" else sys.stdout).buffer
    with _reader_may_leave():
        target.write(data)
        target.flush()


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows on stdout: aligned for a terminal, tab-separated for a program."""
    shown = [[plain(cell) for cell in row] for row in rows]
    if not _watched():
        for row in shown:
            line("\t".join(row))
        return
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    grid = Table(*headers, box=None, header_style="bold", pad_edge=False)
    for row in shown:
        grid.add_row(*(Text(cell) for cell in row))
    # At its own width, even on a narrow terminal: an id that is cut off is of no use to anybody.
    wide = console()
    wide.width, usual = _WIDEST, wide.width
    wide.width = max(usual, Measurement.get(wide, wide.options, grid).maximum)
    with _reader_may_leave():
        wide.print(grid, crop=False)


def console() -> Console:
    """Return a console on stdout; it is plain where stdout is no terminal or NO_COLOR is set."""
    from rich.console import Console

    class Ours(Console):
        def on_broken_pipe(self) -> None:
            raise  # for _reader_may_leave; rich itself would end the program with 1

    return Ours(highlight=False, markup=False, emoji=False, soft_wrap=True)


def show(on: Console, text: str, style: str) -> None:
    """Print one piece of a told story."""
    from rich.text import Text

    with _reader_may_leave():
        on.print(Text(text, style=style))


def _watched() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def _speaks_utf8() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


@contextlib.contextmanager
def _reader_may_leave() -> Any:
    """Go on silently when the reader of our stdout has gone; the exit status still counts.

    Any other failure to write is one of this computer's files. In both cases what is still buffered
    goes nowhere, lest the interpreter fail over it again at its end.
    """
    try:
        yield
    except OSError as exc:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if not isinstance(exc, BrokenPipeError):
            raise FilesError(f"cannot write the output ({exc.strerror})") from exc
