from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rookhold_cli.private_state import private_state


def made_in(home: Path, **more: str) -> Path:
    with private_state({"HOME": str(home)} | more) as (directory, _):
        return directory.parent


def test_it_is_private_and_gone_afterwards(home: Path) -> None:
    with private_state({"HOME": str(home)}) as (directory, _):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
        assert directory.parent == home / ".local/state/rookhold/temporary"
    assert not directory.exists()


def test_it_follows_the_users_state_directory(home: Path, tmp_path: Path) -> None:
    assert (
        made_in(home, XDG_STATE_HOME=str(tmp_path / "xdg")) == tmp_path / "xdg/rookhold/temporary"
    )


@pytest.mark.parametrize("unusable", ["relative", ""])
def test_without_a_home_it_is_in_the_temp_directory(
    unusable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with private_state({"HOME": unusable}) as (directory, _):
        assert directory.parent == tmp_path
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_home_that_others_may_change_is_not_used(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    home.chmod(0o777)
    assert made_in(home) == tmp_path


def test_what_a_killed_command_left_is_removed_by_the_next(home: Path) -> None:
    program = (
        "import os, signal\n"
        "from rookhold_cli.private_state import private_state\n"
        "with private_state() as (directory, _):\n"
        "    print(directory, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    left = Path(killed.stdout.strip())
    assert left.is_dir()
    made_in(home)
    assert not left.exists()


def test_what_is_in_use_is_left_alone(home: Path) -> None:
    with private_state({"HOME": str(home)}) as (directory, _):
        made_in(home)
        assert directory.is_dir()
