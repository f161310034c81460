from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


def test_a_reader_that_leaves_a_told_story_does_not_end_it() -> None:
    program = (
        "from rookhold_cli import output\n"
        "from rookhold_cli.telling import Teller\n"
        "tell = Teller()\n"
        "for n in range(20000): tell.para('word ' * 40)\n"
        "output.table(['a'], [['b']])\n"
        "output.say('still here')\n"
        "raise SystemExit(7)"
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
    assert (process.wait(60), said) == (7, b"rookhold: still here\n")


@pytest.mark.parametrize(
    "what",
    [
        "output.raw('stdout', b'x')",
        "output.line('x')",
        "output.show(output.console(), 'x', '')",
    ],
)
def test_a_full_disk_under_the_output_is_said_so(what: str) -> None:
    program = (
        "from rookhold_cli import errors, output\n"
        f"try: {what}\n"
        "except errors.FilesError as exc: output.say(str(exc))"
    )
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert process.stderr.startswith(b"rookhold: cannot write the output (No space left")


@pytest.mark.parametrize(
    ("closed", "status"), [("<&-", 64), (">&-", 64), ("2>&-", 64), ("<&- >&- 2>&-", 64)]
)
def test_a_closed_stream_is_silence(closed: str, status: int) -> None:
    command = f'exec "$0" -P -m rookhold_cli show {closed}'
    process = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable], capture_output=True, check=False
    )
    assert process.returncode == status
    assert process.stdout == b""
    assert b"Traceback" not in process.stderr


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
