"""`make help` is the only list of what make can do here, so it has to be whole."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_help_lists_every_target() -> None:
    text = (ROOT / "Makefile").read_text("utf-8")
    (targets,) = (line.split()[1:] for line in text.splitlines() if line.startswith(".PHONY:"))
    said = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert [line.split(":")[0].strip() for line in said.splitlines()] == targets
