"""Every code of this wheel is unique and explained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from rookhold_server.errors import CredentialsError, SettingError, StartRefusedError
from rookhold_server.http.problems import TRANSPORT_ERRORS
from rookhold_server.supervisor import children
from rookhold_types.codes import ERRORS

if TYPE_CHECKING:
    from rookhold_types.errors import RookholdError

PAGE = Path(__file__).parents[3] / "docs/errors.md"
ROOTS = {StartRefusedError, SettingError, CredentialsError}  # always raised as a subclass


def raised(root: type[RookholdError]) -> set[type[RookholdError]]:
    below = {error for child in root.__subclasses__() for error in raised(child)}
    return below | ({root} - ROOTS)


def test_every_code_is_unique_and_explained() -> None:
    codes = [error.code for root in (StartRefusedError, CredentialsError) for error in raised(root)]
    codes += [*TRANSPORT_ERRORS, children.CODE]
    assert len(codes) == len(set(codes))
    assert not ERRORS.keys() & set(codes)
    section = PAGE.read_text("utf-8").partition("## rookhold-server\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^### `(\w+)`$", section, re.MULTILINE)) == sorted(codes)
