from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from rookhold_cli.commands._job_options import Job, job_options, read_job
from rookhold_cli.errors import FilesError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def read(*arguments: str, source: str | None = None, code: str | None = "print(1)") -> Job:
    found: list[Job] = []

    @click.command()
    @job_options
    def command(**flags: Any) -> None:
        found.append(read_job("python", source, code, flags))

    ended = CliRunner().invoke(command, arguments, standalone_mode=False, input=b"from stdin")
    if ended.exception is not None:
        raise ended.exception
    return found[0]


def test_nothing_asked_is_nothing_said() -> None:
    job = read()
    assert job.spec["limits"] == {}
    assert job.spec["requirements"] is None
    assert job.spec["stdin"] is None


def test_limits_are_read_into_their_members() -> None:
    job = read("--wall", "1m", "--cpu", "5s", "--memory", "1G", "--pids", "9", "--file-size", "2M")
    assert job.spec["limits"] == {
        "wall_seconds": 60,
        "cpu_seconds": 5,
        "mem_mb": 1024,
        "max_pids": 9,
        "max_file_mb": 2,
    }


def test_isolation_is_asked_for_by_class() -> None:
    job = read("--min-isolation", "linux-shared-kernel")
    assert job.spec["requirements"] == {"minimum_isolation": "linux-shared-kernel"}


def test_a_program_comes_from_a_file_or_stdin(tmp_path: Path) -> None:
    (tmp_path / "a b.py").write_text("print('ü')", "utf-8")
    assert read(source=str(tmp_path / "a b.py"), code=None).spec["code"] == "print('ü')"
    assert read(source="-", code=None).spec["code"] == "from stdin"


@pytest.mark.parametrize(("source", "code"), [(None, None), ("a.py", "print(1)")])
def test_exactly_one_program_is_wanted(source: str | None, code: str | None) -> None:
    with pytest.raises(UsageError):
        read(source=source, code=code)


def test_stdin_cannot_be_two_things() -> None:
    with pytest.raises(UsageError):
        read("--stdin", "-", source="-", code=None)


def test_files_go_to_input_under_their_own_or_another_name(tmp_path: Path) -> None:
    file = tmp_path / "a=b.bin"
    file.write_bytes(b"\x00\xff")
    job = read("--file", str(file), "--file", f"{file}=input/deep/c.bin")
    assert job.spec["files"] == {"input/a=b.bin": b"\x00\xff", "input/deep/c.bin": b"\x00\xff"}


def test_a_file_to_a_place_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    with pytest.raises(UsageError, match="input/PATH"):
        read("--file", f"{tmp_path}/a=elsewhere/a")


def test_two_files_cannot_have_one_name(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(UsageError):
        read("--file", str(tmp_path / "a"), "--file", str(tmp_path / "a"))


def test_outputs_are_named_below_output(tmp_path: Path) -> None:
    job = read("--output-file", "a.csv", "--output-file", f"output/b.csv={tmp_path}/c.csv")
    assert job.spec["outputs"] == ["output/a.csv", "output/b.csv"]
    assert job.destinations == {"output/b.csv": tmp_path / "c.csv"}


def test_a_program_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xff")
    with pytest.raises(UsageError):
        read(source=str(tmp_path / "a"), code=None)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(FilesError):
        read("--file", str(tmp_path / "nothing"))
