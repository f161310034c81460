"""The options that describe a job, and the job they describe."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from rookhold_cli import quantities
from rookhold_cli.errors import FilesError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rookhold import Artifact

_F = TypeVar("_F", bound="Callable[..., Any]")

# Larger than any job may be, small enough to read; the gateway judges the exact size.
_READ_MAX: Final = 24 * 1024 * 1024
_CLASSES: Final = (
    "none",
    "linux-shared-kernel",
    "gvisor-application-kernel",
    "wasm-capability",
    "hardware-vm",
    "confidential-vm",
)
_LIMITS: Final[dict[str, tuple[str, Callable[[Any], int]]]] = {
    "wall": ("wall_seconds", quantities.seconds),
    "cpu": ("cpu_seconds", quantities.seconds),
    "memory": ("mem_mb", quantities.mebibytes),
    "pids": ("max_pids", int),
    "file_size": ("max_file_mb", quantities.mebibytes),
}


def job_options(function: _F) -> _F:
    """Add the options; the command gets them as keyword arguments for `read_job`."""
    for option in reversed(
        (
            click.option("--stdin", metavar="FILE|-", help="What the job reads on stdin."),
            click.option(
                "--file",
                "files",
                multiple=True,
                metavar="SRC[=input/PATH]",
                help="A file to give to the job; in it, input/<name>. Repeatable.",
            ),
            click.option(
                "--output-file",
                "outputs",
                multiple=True,
                metavar="output/PATH[=DEST]",
                help="A file to bring back, into the evidence folder or to DEST. Repeatable.",
            ),
            click.option("--wall", metavar="TIME", help="Time limit, such as 90s or 2m."),
            click.option("--cpu", metavar="TIME", help="Processor time limit."),
            click.option("--memory", metavar="SIZE", help="Memory limit, such as 256M or 1G."),
            click.option("--pids", type=click.IntRange(1, 2**32 - 1), help="Process limit."),
            click.option("--file-size", metavar="SIZE", help="Largest file the job may write."),
            click.option(
                "--min-isolation",
                type=click.Choice(_CLASSES),
                help="Refuse to run in anything weaker.",
            ),
            click.option("--runtime", metavar="PACK", help="A runtime pack of the gateway."),
            click.option(
                "--idempotency-key",
                metavar="KEY",
                help="Run this job once, however often the command is repeated.",
            ),
        )
    ):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class Job:
    """What to submit, and where the user wants its output files besides the evidence."""

    spec: dict[str, Any]
    destinations: dict[str, Path]

    def save_outputs(self, artifacts: Iterable[Artifact]) -> None:
        for artifact in artifacts:
            if (target := self.destinations.get(artifact.path)) is None:
                continue
            try:
                target.write_bytes(artifact.content)
            except OSError as exc:
                raise FilesError(f"cannot write {target} ({exc.strerror})") from exc


def read_job(language: str, source: str | None, code: str | None, flags: dict[str, Any]) -> Job:
    """Build the job from the command line; refuses what cannot be meant."""
    if (source is None) == (code is None):
        raise UsageError("give one program: a FILE, - for stdin, or -c CODE")
    stdin = flags["stdin"]
    if source == "-" and stdin == "-":
        raise UsageError("stdin cannot be both the program and what it reads")
    destinations: dict[str, Path] = {}
    outputs = [_output(text, destinations) for text in flags["outputs"]]
    minimum = flags["min_isolation"]
    spec = {
        "language": language,
        "code": code if source is None else _text(source, "the program"),
        "stdin": None if stdin is None else _text(stdin, "the job's stdin"),
        "limits": _limits(flags),
        "files": dict(_input(text) for text in flags["files"]),
        "outputs": outputs,
        "requirements": None if minimum is None else {"minimum_isolation": minimum},
        "runtime": flags["runtime"],
        "idempotency_key": flags["idempotency_key"],
    }
    if len(spec["files"]) != len(flags["files"]):
        raise UsageError("two --file options give the job a file of the same name")
    return Job(spec, destinations)


def _limits(flags: dict[str, Any]) -> dict[str, int]:
    return {
        member: read(flags[name])
        for name, (member, read) in _LIMITS.items()
        if flags[name] is not None
    }


def _input(text: str) -> tuple[str, bytes]:
    source, found, inside = text.rpartition("=input/")
    if not found:
        source, inside = text, Path(text).name
        if "=" in text and not Path(text).exists():
            raise UsageError(f"--file takes SRC or SRC=input/PATH, not {text}")
    return f"input/{inside}", _read(source)


def _output(text: str, destinations: dict[str, Path]) -> str:
    path, _, destination = text.partition("=")
    if not path.startswith("output/"):
        path = f"output/{path}"
    if destination:
        destinations[path] = Path(destination)
    return path


def _text(source: str, what: str) -> str:
    try:
        return _read(source).decode("utf-8")
    except UnicodeDecodeError as exc:
        raise UsageError(f"{what} is not UTF-8 text") from exc


def _read(source: str) -> bytes:
    """Read a file, or stdin for `-`."""
    try:
        if source == "-":
            content = sys.stdin.buffer.read(_READ_MAX + 1)
        else:
            with open(source, "rb") as file:  # noqa: PTH123 - also what is no regular file: <(...)
                content = file.read(_READ_MAX + 1)
    except OSError as exc:
        raise FilesError(f"cannot read {os.fspath(source)} ({exc.strerror})") from exc
    if len(content) > _READ_MAX:
        raise UsageError(f"{source} is larger than any job may be")
    return content
