"""`rookhold version`: the versions of everything of ours that is installed."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

import click

from rookhold_cli import output
from rookhold_cli._version import __version__

_WHEELS = (
    "rookhold-cli",
    "rookhold-sdk",
    "rookhold-types",
    "rookhold-attestation",
    "rookhold-store",
    "rookhold-exec",
    "rookhold-server",
)
_IF_INSTALLED = ("rookhold-governance",)  # not to be had yet: nobody misses it


@click.command("version")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> None:
    """Show the versions of what is installed; each wheel has its own."""
    found = {wheel: _version(wheel) for wheel in _WHEELS}
    found |= {wheel: version for wheel in _IF_INSTALLED if (version := _version(wheel))}
    if as_json:
        output.as_json({"wheels": found, "python": platform.python_version()})
        return
    for wheel, version in found.items():
        output.line(f"{wheel:<22}{version or 'not installed'}")
    output.line(f"{'python':<22}{platform.python_version()}")


def _version(wheel: str) -> str | None:
    try:
        return installed(wheel)
    except PackageNotFoundError:
        return __version__ if wheel == "rookhold-cli" else None
