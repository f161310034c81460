"""`rookhold keys`: what it prints, what it leaves in the files, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import stat
from typing import TYPE_CHECKING, Any

import pytest
from gateway import Gateway, eventually

from rookhold import ApiError
from rookhold import Rookhold as Client
from rookhold_cli.commands import keys as commands
from rookhold_server.identity import credentials
from rookhold_server.identity.keeping import Keeper
from rookhold_server.identity.scopes import Scope

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    Rookhold = Callable[..., "subprocess.CompletedProcess[bytes]"]

TOKEN = re.compile(rb"rookhold_([A-Za-z0-9-]{1,64})_[A-Za-z0-9_-]{43}\n")
DAY_MS = 86_400_000
VERBS = ("create", "list", "revoke", "rotate")


class Keys:
    """`rookhold keys` with two files of its own."""

    def __init__(self, rookhold: Rookhold, place: Path) -> None:
        self._rookhold = rookhold
        self.file = place / "credentials.json"
        self.pepper = place / "pepper"
        self.settings = {
            "ROOKHOLD_CREDENTIALS_FILE": str(self.file),
            "ROOKHOLD_CREDENTIAL_PEPPER_FILE": str(self.pepper),
        }

    def __call__(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[bytes]:
        return self._rookhold("keys", *arguments, **{**self.settings, **settings})

    def json(self, *arguments: str) -> Any:
        ended = self(*arguments, "--json")
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    def states(self) -> dict[str, str]:
        return {entry["key_id"]: entry["state"] for entry in self.json("list")["credentials"]}


@pytest.fixture
def keys(rookhold: Rookhold, tmp_path: Path) -> Keys:
    return Keys(rookhold, tmp_path)


def test_the_scopes_are_those_of_the_server() -> None:
    assert tuple(scope.value for scope in Scope) == commands.SCOPES
    assert (commands._FILE, commands._PEPPER) == (credentials.FILE, credentials.PEPPER)


@pytest.mark.parametrize("verb", VERBS)
def test_every_part_explains_itself(rookhold: Rookhold, verb: str) -> None:
    ended = rookhold("keys", verb, "--help")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert f"Usage: rookhold keys {verb}".encode() in ended.stdout
    assert verb == "list" or f"\n    rookhold keys {verb} ".encode() in ended.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_without_the_extra_it_is_named(rookhold_without: Rookhold, verb: str) -> None:
    arguments = {"create": ["--tenant", "a", "--all-scopes"], "list": []}.get(verb, ["k"])
    ended = rookhold_without("rookhold_server", "keys", verb, *arguments)
    assert ended.returncode == 64
    assert b"pip install 'rookhold-cli[server]'" in ended.stderr


def test_create_prints_the_token_alone_and_keeps_only_its_digest(keys: Keys) -> None:
    ended = keys("create", "--tenant", "acme", "--scope", "jobs:read", "--expires-in", "90d")
    assert ended.returncode == 0
    found = TOKEN.fullmatch(ended.stdout)
    assert found is not None
    assert ended.stdout.strip() not in ended.stderr
    for file in (keys.file, keys.pepper):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert ended.stdout.strip() not in file.read_bytes()
    [entry] = keys.json("list")["credentials"]
    assert entry["key_id"] == entry["principal_id"] == found[1].decode()
    assert (entry["tenant_id"], entry["scopes"], entry["state"]) == (
        "acme",
        ["jobs:read"],
        "active",
    )
    assert entry["expires_at_ms"] - entry["created_at_ms"] == 90 * DAY_MS
    assert "digest_hmac_sha256" not in entry


def test_a_gateways_file_says_where_they_are_and_a_variable_says_it_louder(
    keys: Keys, tmp_path: Path
) -> None:
    settings = tmp_path / "gateway.toml"
    lines = [f'{name} = "{place}"' for name, place in keys.settings.items()]
    settings.write_text("\n".join(lines))
    settings.chmod(0o600)
    from_file = dict.fromkeys(keys.settings, "") | {"ROOKHOLD_CONFIG_FILE": str(settings)}
    made = keys("create", "--tenant", "acme", "--all-scopes", "--key-id", "a", **from_file)
    assert made.returncode == 0, made.stderr
    assert keys.states() == {"a": "active"}
    assert keys("revoke", "a", **from_file).returncode == 0
    assert keys.states() == {"a": "revoked"}
    elsewhere = {"ROOKHOLD_CREDENTIALS_FILE": str(tmp_path / "none.json")}
    assert keys("list", **from_file | elsewhere).returncode == 74
    assert keys("list", "--file", str(keys.file), **from_file).returncode == 0
    settings.write_text("ROOKHOLD_WORKERS = ")
    refused = keys("list", **from_file)
    assert refused.returncode == 74
    assert b"setting_invalid" in refused.stderr


def test_create_tells_a_program_everything_once(keys: Keys) -> None:
    made = keys.json(
        "create", "--tenant", "acme", "--principal", "bot", "--all-scopes", "--key-id", "ci-1"
    )
    assert TOKEN.fullmatch(made.pop("token").encode() + b"\n")
    made.pop("created_at_ms")
    assert made == {
        "key_id": "ci-1",
        "tenant_id": "acme",
        "principal_id": "bot",
        "scopes": [scope.value for scope in Scope],
        "expires_at_ms": None,
        "revoked_at_ms": None,
        "state": "active",
    }


def test_list_shows_a_row_for_each_and_no_secret(keys: Keys) -> None:
    token = keys("create", "--tenant", "acme", "--all-scopes", "--key-id", "a").stdout.strip()
    keys("create", "--tenant", "other", "--scope", "jobs:read", "--key-id", "b")
    ended = keys("list")
    assert (ended.returncode, ended.stderr) == (0, b"")
    rows = [line.split("\t") for line in ended.stdout.decode().splitlines()]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("a", "acme", "active"),
        ("b", "other", "active"),
    ]
    assert token not in ended.stdout
    entry = json.loads(keys.file.read_text())["credentials"][0]
    assert entry["digest_hmac_sha256"].encode() not in ended.stdout


def test_revoke_ends_it_now_or_later(keys: Keys) -> None:
    for name in ("a", "b"):
        keys("create", "--tenant", "acme", "--all-scopes", "--key-id", name)
    assert keys("revoke", "a").returncode == 0
    later = keys.json("revoke", "b", "--in", "7d")
    assert later["revoked_at_ms"] - later["created_at_ms"] >= 7 * DAY_MS
    assert keys.states() == {"a": "revoked", "b": "active"}


def test_rotate_makes_another_and_lets_the_old_one_go_on_for_a_while(keys: Keys) -> None:
    keys("create", "--tenant", "acme", "--scope", "jobs:read", "--key-id", "a")
    rotated = keys.json("rotate", "a", "--key-id", "b")
    assert TOKEN.fullmatch(rotated["token"].encode() + b"\n")
    assert (rotated["tenant_id"], rotated["principal_id"]) == ("acme", "a")
    assert rotated["replaced"]["key_id"] == "a"
    assert rotated["replaced"]["revoked_at_ms"] == rotated["created_at_ms"] + 3_600_000
    ended = keys("rotate", "b", "--overlap", "0")
    assert TOKEN.fullmatch(ended.stdout)
    assert b"the old one, b, ends now" in ended.stderr
    assert [*keys.states().values()] == ["active", "revoked", "active"]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["create", "--all-scopes"], 64),
        (["create", "--tenant", "acme"], 64),
        (["create", "--tenant", "acme", "--all-scopes", "--scope", "jobs:read"], 64),
        (["create", "--tenant", "acme", "--scope", "jobs:*"], 64),
        (["create", "--tenant", "a b", "--all-scopes"], 64),
        (["create", "--tenant", "acme", "--all-scopes", "--key-id", "a_b"], 64),
        (["create", "--tenant", "acme", "--all-scopes", "--key-id", "taken"], 64),
        (["create", "--tenant", "acme", "--all-scopes", "--expires-in", "soon"], 64),
        (["create", "--tenant", "acme", "--all-scopes", "--expires-in", "0"], 64),
        (["create", "--tenant", "acme", "--all-scopes", "--owner", "no-such-account"], 64),
        (["revoke", "no-such-key"], 64),
        (["revoke", "taken", "--in", "-1d"], 64),
        (["rotate", "no-such-key"], 64),
        (["list", "--file", "/nowhere/credentials.json"], 74),
        (["create", "--tenant", "a", "--all-scopes", "--file", "/nowhere/credentials.json"], 74),
        (["rotate", "taken", "--pepper-file", "/nowhere/pepper"], 74),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_a_refusal_has_a_status_and_a_reason_and_changes_nothing(
    keys: Keys, arguments: list[str], status: int
) -> None:
    keeper = Keeper(keys.file, keys.pepper)
    keeper.create(tenant="acme", principal=None, scopes=(), now_ms=1, key_id="taken")
    before = keys.file.read_bytes()
    ended = keys(*arguments)
    assert (ended.returncode, ended.stdout) == (status, b"")
    assert b"rookhold: " in ended.stderr
    assert b"Traceback" not in ended.stderr
    assert keys.file.read_bytes() == before


def test_without_a_file_it_says_how_to_name_one(rookhold: Rookhold) -> None:
    ended = rookhold("keys", "list")
    assert ended.returncode == 64
    assert b"--file, or ROOKHOLD_CREDENTIALS_FILE" in ended.stderr
    ended = rookhold("keys", "create", "--tenant", "a", "--all-scopes", "--file", "x.json")
    assert ended.returncode == 64
    assert b"--pepper-file, or ROOKHOLD_CREDENTIAL_PEPPER_FILE" in ended.stderr


@pytest.mark.parametrize("arguments", [["list"], ["revoke", "k"], ["rotate", "k"]], ids=str)
def test_a_file_that_nobody_made_yet_is_named_with_what_makes_it(
    keys: Keys, arguments: list[str]
) -> None:
    ended = keys(*arguments)
    assert (ended.returncode, ended.stdout) == (74, b"")
    assert f"no credentials file {keys.file} yet; `rookhold keys create`".encode() in ended.stderr
    assert not [entry for entry in keys.file.parent.iterdir() if entry.name.endswith(".lock")]


@pytest.mark.parametrize("option", ["--file", "--pepper-file"])
def test_create_names_the_directory_that_is_not_there(keys: Keys, option: str) -> None:
    place = keys.file.parent / "absent"
    ended = keys("create", "--tenant", "acme", "--all-scopes", option, str(place / "it"))
    assert (ended.returncode, ended.stdout) == (74, b"")
    assert f"the directory {place} does not exist".encode() in ended.stderr
    assert not keys.file.exists()
    assert not keys.pepper.exists()


def test_a_file_with_a_time_that_no_calendar_has_is_listed(keys: Keys) -> None:
    keys("create", "--tenant", "acme", "--all-scopes")
    document = json.loads(keys.file.read_text())
    document["credentials"][0]["expires_at_ms"] = 2**53 - 1
    keys.file.write_text(json.dumps(document))
    ended = keys("list")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert f"{2**53 - 1} ms".encode() in ended.stdout


@pytest.mark.root
@pytest.mark.parametrize("named", [{"ROOKHOLD_USER": "4711"}, {}])
def test_as_root_new_files_are_those_of_the_account_that_serves(
    keys: Keys, named: dict[str, str]
) -> None:
    arguments = [] if named else ["--owner", "4711"]
    made = keys("create", "--tenant", "acme", "--all-scopes", *arguments, **named)
    assert made.returncode == 0
    keys("create", "--tenant", "acme", "--all-scopes")
    for file in (keys.file, keys.pepper):
        found = file.stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (4711, 4711, 0o600)


def test_what_production_would_refuse_is_said_at_once(keys: Keys) -> None:
    folder = keys.file.parent / "loose"
    folder.mkdir()
    folder.chmod(0o777)
    place = ["--file", str(folder / "c.json"), "--pepper-file", str(folder / "pepper")]
    ended = keys("create", "--tenant", "acme", "--all-scopes", *place)
    assert ended.returncode == 0
    assert b"note: in production a gateway refuses ROOKHOLD_CREDENTIALS_FILE and " in ended.stderr


def refusal(client: Client) -> str:
    try:
        client.capabilities()
    except ApiError as refused:
        return refused.code
    return ""


def test_a_gateway_takes_what_was_made_and_no_more_what_was_revoked(
    keys: Keys, tmp_path: Path
) -> None:
    token = keys("create", "--tenant", "acme", "--all-scopes", "--key-id", "a").stdout.decode()
    with (
        Gateway(tmp_path / "gateway", sandbox="off", **keys.settings) as gateway,
        Client(f"http://{gateway.address}", token.strip()) as client,
    ):
        assert client.run("bash", "echo hello").stdout == "hello\n"
        keys("revoke", "a")
        assert gateway.process is not None
        os.kill(gateway.process.pid, 1)
        assert eventually(60, lambda: refusal(client) == "invalid_api_key")
