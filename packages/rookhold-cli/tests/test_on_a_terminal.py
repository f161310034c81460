"""What a person sees who runs the command in a terminal, and what NO_COLOR takes away."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 60


def on_a_terminal(
    environment: dict[str, str], here: Path, *arguments: str, **settings: str
) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "rookhold_cli", *arguments],
        env=environment | {"TERM": "xterm-256color", "COLUMNS": "100"} | settings,
        cwd=here,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # Linux answers EIO once the other side is closed
            break
        if not piece:
            break
        said += piece
    os.close(ours)
    return process.wait(SECONDS), said.decode()


def test_progress_is_shown_to_a_person(environment: dict[str, str], tmp_path: Path) -> None:
    status, said = on_a_terminal(environment, tmp_path, "run", "python", "-c", "print(6*7)")
    assert status == 0
    assert "running" in said
    assert "42" in said


def test_a_narrow_terminal_shows_whole_ids() -> None:
    job_id = "01890a5d-ac96-774b-bcce-b302099a8057"
    program = (
        f"from rookhold_cli import output; output.table(['job', 'b'], [['{job_id}', 'x' * 50]])"
    )
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"COLUMNS": "40", "TERM": "xterm"},
        stdout=theirs,
        check=True,
        timeout=SECONDS,
    )
    said = os.read(ours, 4096).decode()
    os.close(ours)
    os.close(theirs)
    assert f"{job_id}  {'x' * 50}\r\n" in said


@pytest.mark.parametrize("arguments", [["run", "bash", "-c", "exit 0"], ["check"]], ids=" ".join)
def test_no_color_takes_every_colour_away(
    environment: dict[str, str], tmp_path: Path, arguments: list[str]
) -> None:
    _, coloured = on_a_terminal(environment, tmp_path, *arguments)
    _, bare = on_a_terminal(environment, tmp_path, *arguments, NO_COLOR="1")
    assert "\x1b[" in coloured
    assert "\x1b[3" not in bare, "no colour; bold is none"


def test_a_program_is_asked_for_where_none_is_given(
    environment: dict[str, str], tmp_path: Path
) -> None:
    status, said = on_a_terminal(environment, tmp_path, "run", "python")
    assert status == 64
    assert "FILE" in said
