"""The commands of `docs/verifying.md`, run in order, print what the page says."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rookhold_attestation.testing import sample_evidence

PAGE = Path(__file__).parents[3] / "docs/verifying.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.M)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the sample evidence, and the program on its path."""
    evidence = sample_evidence()
    (tmp_path / "envelope.json").write_bytes(evidence.envelope)
    (tmp_path / "result.json").write_bytes(evidence.artifact)
    evidence.key.public_key.save(tmp_path / "public-key.pem")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(sys.executable)
    script = programs / "rookhold-verify"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rookhold_attestation "$@"\n')
    script.chmod(0o755)
    return tmp_path


def printed(kind: str, source: str, folder: Path) -> str:
    command = ["/bin/sh", "-c", source] if kind == "sh" else [sys.executable, "-c", source]
    return subprocess.run(
        command,
        cwd=folder,
        env={"PATH": f"{folder / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    ).stdout


def test_every_command_of_the_page_prints_what_the_page_says(folder: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text("utf-8"))
    assert len(blocks) == 6
    for kind, source, expected in blocks:
        said = printed(kind, source, folder)
        if expected:
            assert said == expected, source
        else:
            assert re.fullmatch(r'(\{"key_id":"sha256:[0-9a-f]{64}"\}\n){2}', said), source
