"""A real gateway whose disk fails and whose wall clock jumps as files beside it say.

Run as a program it is that gateway. The clock is that of its Python, not of the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from faults.disk import Call, FaultyDisk, How
from gateway import Gateway

if TYPE_CHECKING:
    from collections.abc import Mapping

DISK = "ROOKHOLD_TEST_DISK"  # names the file that says what fails; not there: nothing
CLOCK = "ROOKHOLD_TEST_CLOCK"  # names the file with the seconds that the wall clock is wrong by


class FaultyGateway(Gateway):
    """A gateway, and a disk below its database that can be told to fail, and to be well."""

    def __init__(self, home: Path, **settings: str) -> None:
        super().__init__(home, **settings)
        self._control = home / "disk.json"
        self._clock = home / "clock"

    def fail(self, how: How, *kinds: str, file: str | None = None) -> None:
        """Let every call of these kinds fail from now on."""
        with tempfile.NamedTemporaryFile("w", dir=self.home, delete=False) as new:
            json.dump({"how": how, "kinds": kinds, "file": file}, new)
        Path(new.name).rename(self._control)

    def heal(self) -> None:
        self._control.unlink(missing_ok=True)

    def set_clock(self, seconds: int) -> None:
        """Let the wall clock be this far ahead of the machine's from now on."""
        new = self.home / "clock.new"
        new.write_text(str(seconds), "ascii")
        new.rename(self._clock)

    def begin(self) -> int:
        ready, told = os.pipe()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [self.python, __file__],
                env=self.environment()
                | {
                    "ROOKHOLD_READY_FD": str(told),
                    DISK: str(self._control),
                    CLOCK: str(self._clock),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(told,),
                cwd=self.home,
            )
        os.close(told)
        return ready


class _Control:
    """The rule, read again when the file is another one; asked at every call of SQLite."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode: int | None = None
        self._told: Mapping[str, Any] | None = None

    def __call__(self, call: Call) -> How | None:
        try:
            inode = self._path.stat().st_ino
        except FileNotFoundError:
            self._inode = self._told = None
            return None
        if inode != self._inode:
            self._inode, self._told = inode, json.loads(self._path.read_text("utf-8"))
        told = self._told
        if told is None or call.kind not in told["kinds"] or told["file"] not in (None, call.file):
            return None
        return How(told["how"])


def _let_clock_jump(path: Path) -> None:
    """Before anything of the server is imported: some keep the functions, not the module."""
    really = time.time_ns

    def time_ns() -> int:
        try:
            ahead = int(path.read_text("ascii"))
        except FileNotFoundError:
            ahead = 0
        return really() + ahead * 1_000_000_000

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9


def main() -> int:
    _let_clock_jump(Path(os.environ.pop(CLOCK)))
    from rookhold_server.serve import main as serve

    with FaultyDisk(Path(os.environ["ROOKHOLD_DB"])) as disk:
        disk.rule = _Control(Path(os.environ.pop(DISK)))
        return serve([])


if __name__ == "__main__":
    raise SystemExit(main())
