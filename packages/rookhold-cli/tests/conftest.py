"""Calls the command as a user does: its own process, a clean environment, an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SECONDS = 120

Rookhold = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("ROOKHOLD_")]:
        if not name.startswith("ROOKHOLD_TEST_"):
            monkeypatch.delenv(name)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home of its own, so that no state of the user is touched."""
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
    return kept | {"HOME": str(home), "PYTHONWARNINGS": "error"}


@pytest.fixture
def rookhold(environment: dict[str, str], tmp_path: Path) -> Iterator[Rookhold]:
    """Run `rookhold ARGUMENTS` to its end; what it keeps goes into `tmp_path / "here"`."""
    here = tmp_path / "here"
    here.mkdir()

    def run(
        *arguments: str, stdin: bytes = b"", **settings: str
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "rookhold_cli", *arguments],
            input=stdin,
            capture_output=True,
            env=environment | settings,
            cwd=here,
            timeout=SECONDS,
            check=False,
        )

    yield run
    temporary = Path(environment["HOME"], ".local/state/rookhold/temporary")
    assert not list(temporary.glob("gateway-*")), "a temporary gateway left its state behind"


@pytest.fixture
def rookhold_without(environment: dict[str, str], tmp_path: Path) -> Rookhold:
    """Run `rookhold ARGUMENTS` where one package, named first, is not installed."""

    def run(missing: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[bytes]:
        program = (
            "import sys, importlib.util\n"
            "class Absent:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            f"        if name.partition('.')[0] == {missing!r}:\n"
            "            raise ModuleNotFoundError(name)\n"
            "real = importlib.util.find_spec\n"
            "importlib.util.find_spec = (\n"
            f"    lambda name, *rest: None if name == {missing!r} else real(name, *rest)\n"
            ")\n"
            "sys.meta_path.insert(0, Absent())\n"
            "from rookhold_cli.main import main\n"
            f"sys.exit(main({list(arguments)!r}))"
        )
        return subprocess.run(
            [sys.executable, "-P", "-c", program],
            env=environment | settings,
            cwd=tmp_path,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )

    return run
