"""What docs/deployment.md and deploy/ tell an operator to do is what the gateway takes."""

from __future__ import annotations

import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

from rookhold_attestation import PrivateKey
from rookhold_server.config.guards import check_settings
from rookhold_server.config.settings import read_settings
from rookhold_server.config.variables import PARSERS

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/deployment.md").read_text("utf-8")
UNIT = (ROOT / "deploy/rookhold.service").read_text("utf-8")
ENVIRONMENT = (ROOT / "deploy/gateway.env").read_text("utf-8")


def environment() -> dict[str, str]:
    lines = [line for line in ENVIRONMENT.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_the_page_shows_the_unit_as_it_is() -> None:
    [shown] = re.findall(r"```ini\n(.*?)```", PAGE, re.DOTALL)
    assert shown == UNIT


def test_the_unit_delegates_its_group_and_signals_the_root_process_alone() -> None:
    settings = dict(line.split("=", 1) for line in UNIT.splitlines() if "=" in line)
    assert (settings["Delegate"], settings["KillMode"]) == ("yes", "mixed")
    assert settings["OOMPolicy"] == "continue"
    assert "User" not in settings
    argv = shlex.split(settings["ExecStart"])
    assert argv[1:] == ["-P", "-m", "rookhold_server"]


def test_the_example_is_a_production_that_may_be_started_as_root() -> None:
    settings = read_settings(environment())
    check_settings(settings, effective_uid=0)
    assert settings.production
    assert settings.unknown_variables == ()
    assert (settings.user, settings.sandbox) == ("rookhold", "gvisor")
    slots = range(settings.sandbox_uid_base, settings.sandbox_uid_base + settings.workers)
    assert settings.gvisor_uid not in slots


def test_every_variable_that_is_named_is_one() -> None:
    named = set(re.findall(r"\bROOKHOLD_[A-Z0-9_]+\b", PAGE + ENVIRONMENT + UNIT))
    assert named <= PARSERS.keys()


def test_every_page_that_is_linked_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert links
    for link in links:
        assert (ROOT / "docs" / link).exists(), link


def test_the_command_for_a_signing_key_makes_one(tmp_path: Path) -> None:
    [line] = re.findall(r"^/opt/rookhold/bin/python (-c .*)$", PAGE, re.MULTILINE)
    key = tmp_path / "signing-key.pem"
    arguments = shlex.split(line.replace("/etc/rookhold/keys/signing-key.pem", str(key)))
    subprocess.run([sys.executable, *arguments], check=True, timeout=60)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert PrivateKey.load(key).key_id


def test_the_commands_for_the_root_file_system_are_ones_of_ours() -> None:
    program = Path(sys.executable).with_name("rookhold")
    for command, options in {"verify": {"--sha256", "--uid-base"}, "manifest": set[str]()}.items():
        assert f"rookhold rootfs {command} " in PAGE
        done = subprocess.run(
            [program, "rootfs", command, "--help"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert options <= set(re.findall(r"--[a-z0-9-]+", done.stdout))
