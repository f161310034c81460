"""What the environment says of this computer is what the server would take from it."""

from __future__ import annotations

import pytest

from rookhold_cli.surroundings import is_production, state_directories
from rookhold_server.config.settings import read_settings


@pytest.mark.parametrize("word", ["prod", " Production\t", "release", "dev", "test", ""])
def test_production_is_what_the_server_takes_for_it(word: str) -> None:
    environ = {"HOME": "/home/a", "ROOKHOLD_ENV": word, "ROOKHOLD_ATTESTATION_MODE": "off"}
    assert is_production(environ) == read_settings(environ).production


@pytest.mark.parametrize(
    "environ",
    [
        {"HOME": "/home/a"},
        {"HOME": "/home/a", "XDG_STATE_HOME": "/state"},
        {"HOME": "/home/a", "XDG_STATE_HOME": "relative"},
        {"HOME": "relative", "XDG_STATE_HOME": "/state"},
    ],
)
def test_state_is_kept_where_the_server_keeps_it(environ: dict[str, str]) -> None:
    assert next(state_directories(environ)) == read_settings(environ).state_directory


def test_without_a_home_there_is_no_place() -> None:
    assert list(state_directories({"HOME": "", "XDG_STATE_HOME": "state"})) == []
