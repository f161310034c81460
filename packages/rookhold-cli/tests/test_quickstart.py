"""The guided tour, as a newcomer meets it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rookhold_cli import verifying
from rookhold_cli.commands import quickstart

SECONDS = 150


def take(
    environment: dict[str, str], here: Path, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "rookhold_cli", "quickstart", *arguments],
        env=environment | settings,
        cwd=here,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_it_works_twice_in_a_folder_with_a_space(
    environment: dict[str, str], tmp_path: Path
) -> None:
    here = tmp_path / "a new folder"
    here.mkdir()
    for _ in range(2):
        started = time.monotonic()
        toured = take(environment, here)
        assert toured.returncode == 0, toured.stdout + toured.stderr
        assert time.monotonic() - started < SECONDS
        for shown in (
            "python | 3 x 14 = 42",
            "its limit of 1 s",
            "network_opt_in_unsupported",
            "rookhold-verify verify",
            "not a byte was changed",
            "refused, as it must be",
            "What next",
        ):
            assert shown in toured.stdout
        assert "version of Rookhold" not in toured.stdout
        assert "\x1b" not in toured.stdout
        found = verifying.verify_folder(here / "rookhold-quickstart", tenant="local")
        assert found.outcome == "succeeded"
    assert not list(Path(environment["HOME"]).rglob("gateway-*"))


def test_it_goes_on_without_node_and_says_so(environment: dict[str, str], tmp_path: Path) -> None:
    toured = take(environment, tmp_path, "--into", "kept", ROOKHOLD_NODE="no-such-node")
    assert toured.returncode == 0, toured.stdout + toured.stderr
    assert "left out: node" in toured.stdout
    assert "Two jobs" in toured.stdout


def test_a_folder_of_the_users_own_is_left_alone(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "rookhold-quickstart").mkdir()
    (tmp_path / "rookhold-quickstart/thesis.txt").write_text("mine", "utf-8")
    toured = take(environment, tmp_path)
    assert toured.returncode == 64
    assert os.listdir(tmp_path / "rookhold-quickstart") == ["thesis.txt"]  # noqa: PTH208


def test_a_sandbox_is_called_the_strongest_here_and_now_unless_it_was_asked_for() -> None:
    assert quickstart._where("namespaces-dev", "auto").endswith(
        "(namespaces-dev), the strongest that this computer offers now."
    )
    assert "strongest" not in quickstart._where("namespaces-dev", "namespaces-dev")
    assert "strongest" not in quickstart._where("off", "auto")


@pytest.mark.root
def test_it_works_where_others_may_write(environment: dict[str, str], tmp_path: Path) -> None:
    """The verifier refuses keys in such a place, so the tour hands it a copy from a safe one."""
    here = tmp_path / "shared"
    here.mkdir()
    here.chmod(0o777)
    toured = take(environment, here)
    assert toured.returncode == 0, toured.stdout + toured.stderr
