"""Environments that hold one wheel, what it declares, and nothing else; made without a network."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
UV = Path(sys.executable).parent / "uv"
WHEELS = tuple(sorted(path.parent.name for path in ROOT.glob("packages/*/pyproject.toml")))
INSTALL_SECONDS = 300
USE_SECONDS = 120


def build(source: Path, target: Path, *options: str) -> None:
    """Build the workspace below `source`, as `make wheels` does."""
    argv = [UV, "build", "--quiet", "--offline", *options, "--out-dir", target]
    subprocess.run(argv, cwd=source, check=True, timeout=INSTALL_SECONDS)


class Environment:
    """One virtual environment; what runs in it sees nothing of the checkout."""

    def __init__(self, home: Path, *, cache: Path) -> None:
        self.home = home
        self._cache = cache
        self.bin = home / "venv" / "bin"
        home.mkdir(mode=0o700)
        self._uv("venv", "--python", sys.executable, home / "venv")

    def install(self, *requirements: str | Path, folders: Sequence[Path]) -> None:
        """Install from these flat folders alone, sources built with what they hold too."""
        links = [word for folder in folders for word in ("--find-links", folder)]
        self._uv("pip", "install", "--no-index", *links, *requirements)

    def _uv(self, *argv: str | Path) -> None:
        # Outside the workspace and without a configuration: its sources and index do not count.
        done = subprocess.run(
            [UV, *argv, "--quiet", "--offline", "--no-config", "--cache-dir", self._cache],
            cwd=self.home,
            env=self.variables() | {"VIRTUAL_ENV": str(self.home / "venv")},
            check=False,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
        )
        assert done.returncode == 0, done.stderr

    def variables(self) -> dict[str, str]:
        """Return an environment with nothing of the test runner's own but where commands are."""
        return {
            "PATH": f"{self.bin}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "XDG_STATE_HOME": str(self.home / "state"),
        }

    def installed(self) -> dict[str, str]:
        """Return names and versions of every distribution in it."""
        listing = (
            "import json; from importlib.metadata import distributions\n"
            "print(json.dumps({d.name.lower().replace('_', '-'): d.version "
            "for d in distributions()}))"
        )
        found: dict[str, str] = json.loads(self.python("-c", listing).stdout)
        return found

    def run(
        self,
        command: str,
        *argv: str | Path,
        cwd: Path | None = None,
        timeout: float = USE_SECONDS,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run one of its commands; the caller judges how that ended."""
        return subprocess.run(
            [self.bin / command, *argv],
            cwd=cwd or self.home,
            env=self.variables() | variables,
            check=False,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout,
        )

    def python(
        self,
        *argv: str | Path,
        cwd: Path | None = None,
        timeout: float = USE_SECONDS,
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run its interpreter on a program that has to succeed."""
        done = self.run("python", "-P", *argv, cwd=cwd, timeout=timeout, **variables)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done
