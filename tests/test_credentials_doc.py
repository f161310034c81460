"""What docs/credentials.md shows works as shown."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from rookhold_server.config.settings import read_settings
from rookhold_server.config.variables import PARSERS
from rookhold_server.identity.credentials import parse_credentials
from rookhold_server.identity.scopes import Scope

PAGE = (Path(__file__).resolve().parent.parent / "docs/credentials.md").read_text("utf-8")
SHELL = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
NOT_THE_GATEWAYS = {"ROOKHOLD_API_KEY"}
PATIENCE = 120


def test_its_commands_lead_from_nothing_to_a_rotated_credential(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir(mode=0o700)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", SHELL.replace("/etc/rookhold", str(tmp_path))],
        cwd=tmp_path,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^rookhold_(ci-\d)_", done.stdout, re.MULTILINE) == ["ci-1", "ci-2"]
    entries = parse_credentials((tmp_path / "keys/credentials.json").read_bytes())
    assert [entry.key_id for entry in entries] == ["ci-1", "ci-2"]
    assert [entry.is_alive(entry.created_at_ms + 3_600_000) for entry in entries] == [False, True]
    assert {entry.principal_id for entry in entries} == {"ci-bot"}


def test_the_file_it_shows_is_one() -> None:
    [shown] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    [entry] = parse_credentials(shown.encode())
    assert entry.key_id == "ci-1"
    assert set(json.loads(shown)["credentials"][0]) == set(entry.__struct_fields__)


def test_the_provider_it_shows_is_one() -> None:
    [shown] = re.findall(r"```text\n(ROOKHOLD_OIDC.*?)```", PAGE, re.DOTALL)
    environ = dict(line.split("=", 1) for line in shown.splitlines())
    oidc = read_settings({"HOME": "/home/somebody"} | environ).oidc
    assert oidc is not None
    assert oidc.tenants == {"org-17": "acme", "org-23": "other"}
    for default in (oidc.ttl_seconds, oidc.max_age_seconds):
        assert f"({default})" in PAGE
    assert f"`{','.join(oidc.algorithms)}` unless" in PAGE


def test_every_variable_that_is_named_is_one() -> None:
    named = set(re.findall(r"\bROOKHOLD_[A-Z0-9_]+\b", PAGE)) - {"ROOKHOLD_OIDC_"}
    assert named <= PARSERS.keys() | NOT_THE_GATEWAYS
    assert {name for name in PARSERS if "OIDC" in name or "CREDENTIAL" in name} <= named


def test_every_scope_is_explained() -> None:
    assert re.findall(r"^\| `(\w+:\w+)` \|", PAGE, re.MULTILINE) == [s.value for s in Scope]
