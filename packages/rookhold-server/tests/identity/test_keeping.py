"""Changing the credentials file: what becomes of it, of its owner, and of two who do it at once."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rookhold_server.errors import CredentialsError
from rookhold_server.identity import private_files
from rookhold_server.identity.credentials import CredentialSet, parse_pepper
from rookhold_server.identity.keeping import Keeper, Made
from rookhold_server.identity.private_files import Owner
from rookhold_server.identity.scopes import Scope

NOW = 1_790_000_000_000
DAY = 86_400_000
SCOPES = (Scope.JOBS_READ, Scope.JOBS_SUBMIT)


class Place:
    def __init__(self, folder: Path) -> None:
        self.file = folder / "credentials.json"
        self.pepper = folder / "pepper"

    def keeper(self, owner: Owner | None = None) -> Keeper:
        return Keeper(self.file, self.pepper, owner=owner)

    def create(self, **changes: Any) -> Made:
        wanted = {"tenant": "acme", "principal": "bot", "scopes": SCOPES, "now_ms": NOW}
        return self.keeper().create(**{**wanted, **changes})

    def who(self, token: str, now_ms: int = NOW) -> str | None:
        """Return the credential id that a server with these files sees."""
        pepper = parse_pepper(self.pepper.read_bytes())
        found = CredentialSet(self.keeper().entries(), pepper).find(token, now_ms)
        return None if found is None else found.credential_id


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def refusal(function: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(CredentialsError) as caught:
        function(*arguments, **named)
    return caught.value.code


def test_the_first_one_makes_both_files_for_us_alone(place: Place) -> None:
    old = os.umask(0)
    try:
        made = place.create(key_id="ci-1")
    finally:
        os.umask(old)
    assert place.who(made.token) == "ci-1"
    for file in (place.file, place.pepper):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert made.token not in place.file.read_text()
    assert sorted(path.name for path in place.file.parent.iterdir()) == [
        ".credentials.json.lock",
        "credentials.json",
        "pepper",
    ]


def test_a_pepper_that_is_there_is_used(place: Place) -> None:
    place.pepper.write_text("0f" * 32)
    made = place.create()
    assert place.pepper.read_text() == "0f" * 32
    assert place.who(made.token) == made.credential.key_id


def test_a_lost_pepper_is_never_made_again(place: Place) -> None:
    place.create()
    place.pepper.unlink()
    before = place.file.read_bytes()
    assert refusal(place.create) == "credentials_unusable"
    assert not place.pepper.exists()
    assert place.file.read_bytes() == before


def test_the_principal_is_the_key_unless_named(place: Place) -> None:
    assert place.create(principal=None, key_id="k").credential.principal_id == "k"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tenant": "a b"}, "credential_malformed"),
        ({"tenant": ""}, "credential_malformed"),
        ({"principal": "x" * 129}, "credential_malformed"),
        ({"key_id": "a_b"}, "credential_malformed"),
        ({"key_id": "x" * 65}, "credential_malformed"),
        ({"lifetime_ms": 0}, "credential_malformed"),
        ({"lifetime_ms": 2**60}, "credentials_invalid"),
        ({"key_id": "taken"}, "credential_exists"),
    ],
)
def test_what_a_server_would_refuse_is_not_written(
    place: Place, changes: dict[str, Any], code: str
) -> None:
    place.create(key_id="taken")
    before = place.file.read_bytes()
    assert refusal(place.create, **changes) == code
    assert place.file.read_bytes() == before


def test_revoking_ends_it_and_keeps_its_entry(place: Place) -> None:
    made = place.create(key_id="a")
    other = place.create(key_id="b")
    assert place.keeper().revoke("a", at_ms=NOW + DAY).revoked_at_ms == NOW + DAY
    assert place.who(made.token, NOW + DAY - 1) == "a"
    assert place.who(made.token, NOW + DAY) is None
    assert place.keeper().revoke("a", at_ms=NOW).revoked_at_ms == NOW
    assert place.keeper().revoke("a", at_ms=NOW + DAY).revoked_at_ms == NOW  # not given back
    assert place.who(made.token) is None
    assert place.who(other.token) == "b"
    assert refusal(place.create, key_id="a") == "credential_exists"
    assert refusal(place.keeper().revoke, "c", at_ms=NOW) == "credential_unknown"


def test_a_clock_that_was_set_back_still_revokes(place: Place) -> None:
    made = place.create(key_id="a")
    assert place.keeper().revoke("a", at_ms=NOW - DAY).revoked_at_ms == NOW
    assert place.who(made.token) is None


def test_rotating_makes_one_that_may_do_the_same_and_ends_the_old_one_later(place: Place) -> None:
    old = place.create(key_id="a", lifetime_ms=90 * DAY)
    rotated = place.keeper().rotate("a", now_ms=NOW + DAY, overlap_ms=1000, new_key_id="b")
    made = rotated.made.credential
    assert (made.key_id, made.tenant_id, made.principal_id) == ("b", "acme", "bot")
    assert made.scopes == old.credential.scopes
    assert made.expires_at_ms == NOW + 91 * DAY
    assert place.who(rotated.made.token, NOW + DAY) == "b"
    assert place.who(old.token, NOW + DAY + 999) == "a"
    assert place.who(old.token, NOW + DAY + 1000) is None
    again = place.keeper().rotate("b", now_ms=NOW + DAY, overlap_ms=0, lifetime_ms=5)
    assert again.made.credential.expires_at_ms == NOW + DAY + 5
    assert place.who(rotated.made.token, NOW + DAY) is None


def test_one_that_has_ended_is_not_rotated(place: Place) -> None:
    place.create(key_id="a")
    place.keeper().revoke("a", at_ms=NOW)
    assert refusal(place.keeper().rotate, "a", now_ms=NOW, overlap_ms=0) == "credential_ended"
    assert refusal(place.keeper().rotate, "b", now_ms=NOW, overlap_ms=0) == "credential_unknown"


def test_without_a_file_there_is_nothing_to_list_or_to_end(place: Place) -> None:
    assert refusal(place.keeper().entries) == "credentials_unusable"
    assert refusal(place.keeper().revoke, "a", at_ms=NOW) == "credentials_unusable"
    assert refusal(Keeper(place.file).create, tenant="a", principal=None, scopes=(), now_ms=1) == (
        "credentials_unusable"
    )
    assert not place.file.exists()


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 1, "credentials": []}'])
def test_a_file_that_is_none_is_left_alone(place: Place, content: bytes) -> None:
    place.file.write_bytes(content)
    place.pepper.write_text("0f" * 32)
    assert refusal(place.create) == "credentials_invalid"
    assert refusal(place.keeper().revoke, "a", at_ms=NOW) == "credentials_invalid"
    assert place.file.read_bytes() == content


def test_a_link_is_neither_read_nor_replaced(place: Place) -> None:
    made = place.create(key_id="a")
    real = place.file.rename(place.file.with_name("real"))
    place.file.symlink_to(real)
    assert refusal(place.create) == "credentials_unusable"
    assert refusal(place.keeper().revoke, "a", at_ms=NOW) == "credentials_unusable"
    assert place.file.is_symlink()
    place.file.unlink()
    real.rename(place.file)
    assert place.who(made.token) == "a"


def test_a_loose_mode_is_put_right_by_the_next_change(place: Place) -> None:
    place.create()
    place.file.chmod(0o644)
    place.create()
    assert stat.S_IMODE(place.file.stat().st_mode) == 0o600


@pytest.mark.root
def test_as_root_new_files_are_the_owners_and_old_ones_stay_whose_they_are(place: Place) -> None:
    os.chown(place.file.parent, 4711, 4711)
    keeper = place.keeper(Owner(4711, 4712))
    keeper.create(tenant="a", principal=None, scopes=(), now_ms=NOW)
    lock = place.file.with_name(".credentials.json.lock")
    for path in (place.file, place.pepper, lock):
        found = path.stat()
        assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (4711, 4712, 0o600)
    place.create()
    assert (place.file.stat().st_uid, place.file.stat().st_gid) == (4711, 4712)


def test_a_failure_leaves_the_old_file_and_nothing_else(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create()
    before, names = place.file.read_bytes(), set(place.file.parent.iterdir())

    def full(descriptor: int) -> None:
        raise OSError(28, "no space")

    monkeypatch.setattr(private_files.os, "fsync", full)
    assert refusal(place.create) == "credentials_unusable"
    assert place.file.read_bytes() == before
    assert set(place.file.parent.iterdir()) == names


def test_who_finds_it_locked_waits_and_then_gives_up(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.create()
    monkeypatch.setattr(private_files, "_LOCK_SECONDS", 0.2)
    lock = place.file.with_name(".credentials.json.lock")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert refusal(place.create) == "credentials_busy"
    place.create()


MAKES = """
import sys
from pathlib import Path
from rookhold_server.identity.keeping import Keeper
folder, name = Path(sys.argv[1]), sys.argv[2]
keeper = Keeper(folder / "credentials.json", folder / "pepper")
for number in range(int(sys.argv[3])):
    made = keeper.create(tenant="t", principal=None, scopes=(), now_ms=1, key_id=f"{name}-{number}")
    print(made.token, flush=True)
"""


def makers(place: Place, names: str, count: int) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", MAKES, str(place.file.parent), name, str(count)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]


def test_many_at_once_lose_nothing(place: Place) -> None:
    place.create()  # both files, so that all meet at the lock
    tokens = []
    for maker in makers(place, "abc", 10):
        out, _ = maker.communicate(timeout=60)
        assert maker.returncode == 0
        tokens += out.split()
    assert len(tokens) == 30
    assert all(place.who(token) for token in tokens)
    assert len(place.keeper().entries()) == 31


def test_one_that_is_killed_leaves_a_whole_file_and_no_lock(place: Place) -> None:
    for turn in range(2):
        [maker] = makers(place, f"{turn}", 100_000)
        with maker:
            assert maker.stdout is not None
            told = [maker.stdout.readline().strip() for _ in range(1 + 3 * turn)]
            maker.send_signal(signal.SIGKILL)
        assert all(place.who(token) for token in told)
        place.create()
