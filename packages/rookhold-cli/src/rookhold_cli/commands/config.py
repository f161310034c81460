"""`rookhold config`: the settings that a gateway started here would have."""

from __future__ import annotations

import os

import click

from rookhold_cli import output
from rookhold_cli.errors import CommandError
from rookhold_cli.exits import Exit
from rookhold_cli.extras import load

_WHAT = "the settings of a gateway"


class _SettingsRefusedError(CommandError):
    """A gateway would refuse to start with these settings."""

    exit = Exit.REFUSED


@click.group("config")
def command() -> None:
    """Show the settings of a gateway.

    They come from ROOKHOLD_* variables and from the TOML file that ROOKHOLD_CONFIG_FILE names;
    where both say something, the variable counts.

    \b
    Example of a file:
      ROOKHOLD_ADDR = "127.0.0.1:7300"
      ROOKHOLD_WORKERS = 4
      ROOKHOLD_UNSAFE_ALLOW_NAIVE = false
    """  # noqa: D301 - as in `run`


@command.command("show", short_help="Print every setting, its value and where it comes from.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show(as_json: bool) -> None:
    """Print every setting, its value and where it comes from. Secrets are not shown.

    Settings that `rookhold serve` would refuse are refused here too, in the same words.

    \b
    Examples:
      rookhold config show
      rookhold config show --json
      ROOKHOLD_CONFIG_FILE=/etc/rookhold/gateway.toml rookhold config show
    """  # noqa: D301 - as in `run`
    from rookhold_types.errors import RookholdError  # comes with the server

    module = load("rookhold_server.config.shown", what=_WHAT, extra="server")
    try:
        settings = module.shown(os.environ)
        unknown = module.unknown(os.environ)
    except RookholdError as refused:
        raise _SettingsRefusedError(f"{refused} ({refused.code})") from None
    for name in unknown:
        output.say(f"{name} is not a setting")
    if as_json:
        output.as_json(
            {
                "settings": [
                    {"name": each.name, "value": each.value, "source": each.source}
                    for each in settings
                ]
            }
        )
        return
    output.table(
        ("setting", "value", "from"),
        ((each.name, "" if each.value is None else each.value, each.source) for each in settings),
    )
