"""A real server, something of it changed before it starts: for moments nobody meets by chance."""

from __future__ import annotations

import sys
from textwrap import dedent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PROGRAM = """\
#!{python}
import runpy
import sys
{changes}
sys.argv = ["rookhold_server"]
runpy.run_module("rookhold_server", run_name="__main__", alter_sys=True)
"""


def altered(place: Path, changes: str) -> str:
    """Write a program that makes these changes and is then the server; for `Gateway(python=)`."""
    place.write_text(_PROGRAM.format(python=sys.executable, changes=dedent(changes)), "utf-8")
    place.chmod(0o700)
    return str(place)
