from __future__ import annotations

import subprocess
import sys

import pytest

from rookhold_cli.output import plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, ünïcode and 漢字", "plain text, ünïcode and 漢字"),
        ("\x1b[2Jgone", "·[2Jgone"),
        ("a\nb\rc\td", "a·b·c·d"),
        ("\u202eright to left", "·right to left"),
        ("\x9b31m", "·31m"),
        ("\u2028", "·"),
        ("\ud800", "·"),
    ],
)
def test_foreign_text_cannot_drive_the_terminal(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_reader_that_leaves_does_not_end_the_command() -> None:
    program = (
        "from rookhold_cli import output\n"
        "for n in range(10000): output.raw('stdout', b'x' * 1000)\n"
        "output.line('more')\n"
        "output.say('still here')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        process.stdout.read(10)
        process.stdout.close()
        said = process.stderr.read()
    assert process.wait(60) == 0
    assert said == b"rookhold: still here\n"
