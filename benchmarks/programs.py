"""The programs that are run, and the clean environment that every child is given."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rookhold_exec.interpreters import SYSTEM_PATH, find_visible

# Nothing of the caller's: variables such as NODE_EXTRA_CA_CERTS double the start of an interpreter,
# and a shim earlier on PATH multiplies it.
ENVIRONMENT = {"PATH": SYSTEM_PATH, "HOME": "/tmp", "LANG": "C.UTF-8"}


@dataclass(frozen=True, kw_only=True)
class Program:
    """One program as every launcher starts it: interpreter, options, script."""

    name: str
    interpreter: str
    options: tuple[str, ...] = ()  # only for those who are free to choose them
    script: str
    code: str

    def path(self) -> str:
        """Return the interpreter as a sandbox sees it; KeyError if it sees none."""
        found = find_visible(self.interpreter)
        if found is None:
            raise KeyError(self.name)
        return found

    def argv(self, directory: str) -> list[str]:
        return [self.path(), *self.options, f"{directory}/{self.script}"]


PROGRAMS = (
    Program(name="true", interpreter="true", script="job.sh", code=""),
    Program(name="bash", interpreter="bash", script="job.sh", code="echo hello\n"),
    Program(
        name="python",
        interpreter="python3",
        options=("-I",),
        script="job.py",
        code='print("hello")\n',
    ),
    Program(name="node", interpreter="node", script="job.js", code='console.log("hello")\n'),
)
BY_NAME = {program.name: program for program in PROGRAMS}


def available() -> tuple[Program, ...]:
    return tuple(program for program in PROGRAMS if find_visible(program.interpreter))


def write_scripts(directory: Path) -> None:
    """Put every script where bare and bubblewrap find it; readable by a sandbox's user."""
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    for program in PROGRAMS:
        script = directory / program.script
        if not script.exists() or program.code:
            script.write_text(program.code, "utf-8")
            script.chmod(0o644)


def scratch() -> Path:
    """Return a new directory of ours; a sandbox's user may pass through it."""
    made = Path(tempfile.mkdtemp(prefix="rookhold-bench-"))
    made.chmod(0o711)
    return made


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
