"""The pinned package list: a data file, read once, compared with what was installed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from typing import Final

from msgspec import Struct

FILE: Final = "packages.txt"

_FIELDS: Final = re.compile(r"^(Package|Version|Status): (.+)$", re.MULTILINE)
_INSTALLED: Final = "install ok installed"


class Pins(Struct, frozen=True, kw_only=True):
    """The suite, the moment that files are dated to, and the version of every package."""

    suite: str
    epoch: int
    packages: Mapping[str, str]


def load() -> Pins:
    """Return what this version of Rookhold builds."""
    return parse((files("rookhold_exec.rootfs") / FILE).read_text("ascii"))


def parse(text: str) -> Pins:
    """Read the list: two words a line, `#` begins a comment line."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, value = line.split()
            found[name] = value
    suite, day = found.pop("suite"), found.pop("epoch")
    moment = datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC)
    return Pins(suite=suite, epoch=int(moment.timestamp()), packages=found)


def installed(status: str) -> dict[str, str]:
    """Return package and version of each installed package in a dpkg status file."""
    found: dict[str, str] = {}
    for stanza in status.split("\n\n"):
        fields = dict(_FIELDS.findall(stanza))
        if fields.get("Status") == _INSTALLED:
            found[fields["Package"]] = fields["Version"]
    return found


def differences(wanted: Mapping[str, str], got: Mapping[str, str]) -> list[str]:
    """Say in words how what was installed differs from what was pinned."""
    said = []
    for name in sorted(wanted.keys() | got.keys()):
        pinned, found = wanted.get(name), got.get(name)
        if pinned != found:
            said.append(f"{name}: pinned {pinned or 'not at all'}, got {found or 'nothing'}")
    return said
