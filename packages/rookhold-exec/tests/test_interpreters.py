import os
from pathlib import Path

import pytest

from rookhold_exec import interpreters


def test_a_name_is_looked_up_on_the_path_alone(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    assert interpreters.find("tool", str(tmp_path)) is None
    tool.chmod(0o755)
    assert interpreters.find("tool", f"/nowhere:{tmp_path}") == str(tool)
    assert interpreters.find(str(tool), "") == str(tool)
    assert interpreters.find("./tool", str(tmp_path)) is None
    assert interpreters.find("tool", "/usr/bin:/bin") is None


def test_an_interpreter_that_a_sandbox_does_not_hold_is_not_found(tmp_path: Path) -> None:
    assert interpreters.find_visible("bash") in {"/usr/bin/bash", "/bin/bash"}
    tool = tmp_path / "python3"
    tool.symlink_to("/usr/bin/python3")
    assert interpreters.find_visible(str(tool)) is None
    os.unlink(tool)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Python 3.11.2\n", "3.11.2"),
        ("v20.20.2\n", "20.20.2"),
        ("GNU bash, version 5.2.15(1)-release (x86_64-pc-linux-gnu)\nCopyright", "5.2.15"),
        ("", None),
        ("no number here", None),
    ],
)
def test_the_version_is_read_from_the_first_line(text: str, version: str | None) -> None:
    assert interpreters.version_of(text) == version


def test_a_job_s_environment_is_all_there_is() -> None:
    environment = interpreters.environment(path="/bin", home="/tmp")
    assert environment == {
        b"PATH": b"/bin",
        b"HOME": b"/tmp",
        b"TMPDIR": b"/tmp",
        b"LANG": b"C.UTF-8",
    }
