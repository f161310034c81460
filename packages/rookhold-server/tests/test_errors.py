"""Every code of this wheel is unique and explained."""

from __future__ import annotations

import re
from pathlib import Path

from rookhold_server.errors import SettingError, StartRefusedError
from rookhold_server.http.problems import TRANSPORT_ERRORS
from rookhold_server.supervisor import children
from rookhold_types.codes import ERRORS

PAGE = Path(__file__).parents[3] / "docs/errors.md"
ROOTS = {StartRefusedError, SettingError}  # always raised as a subclass


def raised(root: type[StartRefusedError]) -> set[type[StartRefusedError]]:
    below = {error for child in root.__subclasses__() for error in raised(child)}
    return below | ({root} - ROOTS)


def test_every_code_is_unique_and_explained() -> None:
    codes = [error.code for error in raised(StartRefusedError)]
    codes += [*TRANSPORT_ERRORS, children.CODE]
    assert len(codes) == len(set(codes))
    assert not ERRORS.keys() & set(codes)
    section = PAGE.read_text("utf-8").partition("## rookhold-server\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^### `(\w+)`$", section, re.MULTILINE)) == sorted(codes)
