"""Tells a story on stdout: headings, paragraphs, and what a program said, set apart from them."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from .output import console, plain, show

if TYPE_CHECKING:
    from collections.abc import Iterable

WIDTH: Final = 78
_INDENT: Final = "   "


class Teller:
    """Numbers its chapters; plain text where nobody watches."""

    def __init__(self) -> None:
        self._console = console()
        self._chapter = 0

    def title(self, text: str) -> None:
        self._print(text, "bold")

    def chapter(self, text: str) -> None:
        self._chapter += 1
        self._print("")
        self._print(f"{self._chapter}. {text}", "bold cyan")

    def para(self, text: str, *, style: str = "") -> None:
        self._print(
            textwrap.fill(
                plain(text),
                WIDTH,
                initial_indent=_INDENT,
                subsequent_indent=_INDENT,
                break_long_words=False,
                break_on_hyphens=False,
            ),
            style,
        )

    def verbatim(self, text: str) -> None:
        """Show a path or the like, never wrapped: it may hold spaces and is there to be copied."""
        self._print(f"{_INDENT}{plain(text)}")

    def good(self, text: str) -> None:
        self.para(text, style="green")

    def bad(self, text: str) -> None:
        self.para(text, style="red")

    def command(self, text: str) -> None:
        self._print(f"{_INDENT}  $ {plain(text)}", "bold")

    def quote(self, speaker: str, lines: Iterable[str]) -> None:
        """Show what a program printed, never wrapped and never interpreted."""
        for line in lines:
            self._print(f"{_INDENT}{speaker:>7} | {plain(line)}", "dim" if not speaker else "")

    def items(self, pairs: Iterable[tuple[str, str]], *, width: int = 22) -> None:
        for name, text in pairs:
            hanging = _INDENT + " " * (width + 2)
            self._print(
                textwrap.fill(
                    plain(text),
                    WIDTH,
                    initial_indent=f"{_INDENT}  {plain(name):<{width}}",
                    subsequent_indent=hanging,
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )

    def _print(self, text: str, style: str = "") -> None:
        show(self._console, text, style)
