"""Every command and every piece of code that the README shows works as shown."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)
SHELL = [text.strip() for kind, text in BLOCKS if kind == "sh"]
PYTHON = [text for kind, text in BLOCKS if kind == "python"]
PATIENCE = 300


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    """What a newcomer's shell has: an empty home, and no gateway configured."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    kept = {name: os.environ[name] for name in ("PATH", "CI", "PIP_CERT") if name in os.environ}
    return kept | {"HOME": str(home), "LANG": "C.UTF-8"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder in which `.venv/bin/rookhold` is found, so that nothing is left in the real one."""
    folder = tmp_path / "check out"
    (folder / ".venv").mkdir(parents=True)
    (folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    return folder


def shell(line: str, folder: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_the_readme_shows_what_these_tests_run() -> None:
    assert [line.split()[-1] for line in SHELL] == [
        "quickstart",
        "check",
        "-",
        "rookhold-evidence/*",
        "dev",
    ]
    assert len(PYTHON) == 1


@pytest.mark.linux_ns
def test_make_quickstart_works_twice(surroundings: dict[str, str]) -> None:
    assert SHELL[0] == "make quickstart"
    for _ in range(2):
        done = shell(SHELL[0], ROOT, surroundings)
        assert done.returncode == 0, done.stderr
        assert "verified:" in done.stdout
        assert "refused, as it must be" in done.stdout
        assert "What next" in done.stdout


@pytest.mark.linux_ns
def test_a_job_by_hand_prints_its_output_and_its_evidence_verifies(
    surroundings: dict[str, str], checkout: Path
) -> None:
    done = shell(SHELL[2], checkout, surroundings)
    assert (done.returncode, done.stdout) == (0, "42\n")
    assert "temporary" in done.stderr
    checked = shell(SHELL[3], checkout, surroundings)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.linux_ns
def test_the_python_example_works_against_the_development_gateway(
    surroundings: dict[str, str], checkout: Path
) -> None:
    ready, told = os.pipe()
    gateway = subprocess.Popen(
        SHELL[4].split(),
        cwd=checkout,
        pass_fds=(told,),
        env=surroundings | {"ROOKHOLD_ADDR": "127.0.0.1:0", "ROOKHOLD_READY_FD": str(told)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    os.close(told)
    try:
        with os.fdopen(ready, encoding="utf-8") as pipe:
            line = pipe.readline()
        assert line, gateway.communicate(timeout=60)[0]
        address = re.search(r"127\.0\.0\.1:\d+", line)
        assert address is not None
        code = PYTHON[0].replace("127.0.0.1:7300", address.group())
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=surroundings,
            cwd=checkout,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, "42\n\n"), done.stderr
    finally:
        gateway.send_signal(signal.SIGTERM)
        said = gateway.communicate(timeout=120)[0]
    assert gateway.returncode == 0, said
    assert "rookhold-dev-key" in said
