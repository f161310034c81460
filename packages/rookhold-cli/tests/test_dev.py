from __future__ import annotations

import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rookhold_cli.commands.dev import StateError, prepare
from rookhold_cli.errors import UsageError

if TYPE_CHECKING:
    from conftest import Rookhold


def test_it_serves_this_computer_only(home: Path) -> None:
    kept, _ = prepare({"HOME": str(home), "ROOKHOLD_ADDR": "0.0.0.0:80"}, 7300)
    assert kept["ROOKHOLD_ADDR"] == "127.0.0.1:7300"


def test_the_public_key_is_said_aloud_and_real_ones_are_set_aside(home: Path) -> None:
    kept, told = prepare({"HOME": str(home), "ROOKHOLD_API_KEYS": "acme:real-secret"}, 7300)
    assert "ROOKHOLD_API_KEYS" not in kept
    said = "\n".join(told)
    assert "PUBLIC" in said
    assert "rookhold-dev-key" in said
    assert "ROOKHOLD_API_KEYS" in said
    assert "real-secret" not in said


def test_a_provider_of_access_tokens_is_set_aside_with_the_other_credentials(home: Path) -> None:
    theirs = {
        "ROOKHOLD_OIDC_ISSUER": "https://login.example",
        "ROOKHOLD_OIDC_TENANT_MAP": "",
        "ROOKHOLD_CREDENTIALS_FILE": "/etc/rookhold/keys/credentials.json",
    }
    kept, told = prepare({"HOME": str(home), **theirs}, 7300)
    assert not kept.keys() & theirs.keys()
    assert "not used here: ROOKHOLD_CREDENTIALS_FILE, ROOKHOLD_OIDC_ISSUER" in told


def test_a_signing_key_is_made_once_and_then_kept(home: Path) -> None:
    kept, told = prepare({"HOME": str(home)}, 7300)
    path = Path(kept["ROOKHOLD_ATTESTATION_KEY_FILE"])
    assert path == home / ".local/state/rookhold/signing-key.pem"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert any("NEW key" in line for line in told)
    before = path.read_bytes()
    _, told = prepare({"HOME": str(home)}, 7300)
    assert not any("NEW key" in line for line in told)
    assert path.read_bytes() == before


def test_a_key_of_the_users_own_is_used(home: Path) -> None:
    kept, _ = prepare({"HOME": str(home), "ROOKHOLD_ATTESTATION_KEY_FILE": "/mine"}, 7300)
    assert kept["ROOKHOLD_ATTESTATION_KEY_FILE"] == "/mine"
    assert not (home / ".local").exists()


def test_signing_can_be_off_and_that_is_said(home: Path) -> None:
    kept, told = prepare({"HOME": str(home), "ROOKHOLD_ATTESTATION_MODE": "off"}, 7300)
    assert "ROOKHOLD_ATTESTATION_KEY_FILE" not in kept
    assert any("NOT signed" in line for line in told)


def test_a_state_directory_that_others_may_write_to_is_refused(home: Path) -> None:
    state = home / ".local/state/rookhold"
    state.mkdir(parents=True)
    state.chmod(0o777)
    with pytest.raises(StateError):
        prepare({"HOME": str(home)}, 7300)
    assert stat.S_IMODE(state.stat().st_mode) == 0o777


def test_without_a_home_there_is_nowhere_to_keep_the_key() -> None:
    with pytest.raises(UsageError):
        prepare({}, 7300)


@pytest.mark.parametrize("word", ["prod", " Production ", "RELEASE"])
def test_production_is_refused(home: Path, word: str) -> None:
    with pytest.raises(UsageError):
        prepare({"HOME": str(home), "ROOKHOLD_ENV": word}, 7300)


def test_a_port_that_is_taken_is_said_before_anything_else(rookhold: Rookhold) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = rookhold("dev", "--port", port)
    assert ended.returncode == 69
    assert ended.stderr.startswith(f"rookhold: port {port} cannot be used".encode())
    assert ended.stderr.count(b"\n") == 1
