"""Loads one verb's module, calls it, and reports how it ended."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

import click

from . import output
from ._version import __version__
from .errors import CommandError, TerminatedError
from .exits import Exit, of_error
from .main import VERBS

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Verbs(click.Group):
    """A group whose commands live in modules that are loaded only when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"rookhold_cli.commands.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.command(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="rookhold %(version)s")
def rookhold() -> None:
    """Run untrusted Python, Node and Bash in a sandbox, and keep evidence of what happened.

    ROOKHOLD_BASE_URL and ROOKHOLD_API_KEY name the gateway. Without them, run starts a temporary
    one on this computer.
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status."""
    from rookhold import RookholdError

    _fill_closed_streams()
    if not arguments:
        output.note(rookhold.get_help(click.Context(rookhold, info_name="rookhold")))
        return Exit.USAGE
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that cannot show it is no failure
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        ended = rookhold.main(arguments, prog_name="rookhold", standalone_mode=False)
    except click.ClickException as exc:
        usage = exc.ctx.get_usage() if isinstance(exc, click.UsageError) and exc.ctx else None
        if usage:
            output.note(usage)
        output.say(exc.format_message())
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except TerminatedError as exc:
        return 128 + exc.number
    except CommandError as exc:
        output.say(str(exc))
        return exc.exit
    except RookholdError as exc:
        output.say(f"{_prefix(exc)}{exc}{_hint(exc)}")
        return of_error(exc)
    return ended if isinstance(ended, int) else Exit.OK


def _fill_closed_streams() -> None:
    """Give a stream that was closed before us an end: print would take stdout for stderr."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115


def _prefix(error: Exception) -> str:
    from rookhold import ApiError

    return f"refused ({error.code}): " if isinstance(error, ApiError) else ""


def _hint(error: Exception) -> str:
    from rookhold import IntegrityError, ProtocolError, UnreachableError

    from .gateway import configured, existing

    if isinstance(error, ProtocolError) and not isinstance(error, IntegrityError):
        return f"; is {existing().base_url} the address of a gateway?"
    if not isinstance(error, UnreachableError):
        return ""
    if target := configured():
        return f": {target.base_url}"
    return "; start one with `rookhold dev`, or set ROOKHOLD_BASE_URL and ROOKHOLD_API_KEY"
