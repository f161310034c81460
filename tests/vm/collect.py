"""Finds the tests that are to run in the VM, in a process of its own.

Run as a command it prints them: `python collect.py FILE PATH...`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
SECONDS: Final = 300


class Found:
    """The tests, and why some may be missing."""

    def __init__(self, tests: list[str], trouble: str) -> None:
        self.tests = tests
        self.trouble = trouble


@cache
def found() -> Found:
    """Collect the suites that exist."""
    from .suites import SUITES, belongs

    places = [place for _, place, _ in SUITES if (ROOT / place).exists()]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found"
        done = subprocess.run(
            [sys.executable, __file__, str(out), *places],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        items = json.loads(out.read_text("utf-8")) if out.exists() else []
    tests = [item["test"] for item in items if belongs(item["test"], item["marks"])]
    return Found(tests, "" if done.returncode == 0 else done.stdout[-10_000:])


class _Collector:
    def __init__(self, out: str) -> None:
        self._out = Path(out)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        items: list[dict[str, Any]] = [
            {
                "test": item.nodeid,
                "marks": [(mark.name, [str(arg) for arg in mark.args]) for mark in _marks(item)],
            }
            for item in session.items
        ]
        self._out.write_text(json.dumps(items), "utf-8")


def _marks(item: pytest.Item) -> list[pytest.Mark]:
    return list(item.iter_markers())


if __name__ == "__main__":
    file, *paths = sys.argv[1:]
    argv = ["--collect-only", "-qq", "-p", "no:cacheprovider", "-m", "", *paths]
    raise SystemExit(pytest.main(argv, plugins=[_Collector(file)]))
