"""`rookhold rootfs`: what it prints, what it refuses with which status, and what it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from fake_debian import FakeDebian
from small_rootfs import make

from rookhold_cli.commands import rootfs as commands
from rookhold_exec.rootfs import digest, errors, manifest, pins
from rookhold_exec.settings import SLOT_UID_BASE
from rookhold_types.runtimes import PACKS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Rookhold = Callable[..., "subprocess.CompletedProcess[bytes]"]

SECONDS = 60
PINNED = dict(pins.load().packages)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path / "root")


@pytest.fixture
def fake(tmp_path: Path) -> FakeDebian:
    made = FakeDebian(tmp_path / "fake")
    made.installs(PINNED)
    return made


def path(fake: FakeDebian) -> dict[str, str]:
    return {"PATH": f"{fake.folder}:/usr/bin:/bin"}


@pytest.mark.parametrize("verb", ["build", "manifest", "verify"])
def test_every_part_explains_itself(rookhold: Rookhold, verb: str) -> None:
    ended = rookhold("rootfs", verb, "--help")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert f"Usage: rookhold rootfs {verb}".encode() in ended.stdout


@pytest.mark.parametrize("verb", ["build", "manifest", "verify"])
def test_without_the_extra_it_is_named(rookhold_without: Rookhold, verb: str) -> None:
    ended = rookhold_without("rookhold_exec", "rootfs", verb, "/srv/rootfs")
    assert ended.returncode == 64
    assert b"pip install 'rookhold-cli[server]'" in ended.stderr


def test_manifest_prints_the_digest_alone(rookhold: Rookhold, root: Path) -> None:
    ended = rookhold("rootfs", "manifest", str(root))
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert ended.stdout.decode() == digest(manifest(str(root))) + "\n"


def test_manifest_writes_itself_out(rookhold: Rookhold, root: Path, tmp_path: Path) -> None:
    out = tmp_path / "manifest"
    ended = rookhold("rootfs", "manifest", str(root), "--out", str(out), "--json")
    assert out.read_bytes() == manifest(str(root))
    said = json.loads(ended.stdout)
    assert said == {"manifest_sha256": digest(out.read_bytes()), "manifest": str(out)}
    ended = rookhold("rootfs", "manifest", str(root), "--out", str(tmp_path / "no" / "place"))
    assert ended.returncode == 74


def test_manifest_of_nothing_ends_with_74(rookhold: Rookhold) -> None:
    ended = rookhold("rootfs", "manifest", "nowhere")
    assert (ended.returncode, ended.stdout) == (74, b"")
    assert b"(rootfs_missing)" in ended.stderr


def test_verify_says_what_is_there(rookhold: Rookhold, root: Path) -> None:
    ended = rookhold("rootfs", "verify", str(root), "--json")
    assert (ended.returncode, ended.stderr) == (0, b"")
    said = json.loads(ended.stdout)
    assert said["manifest_sha256"] == digest(manifest(str(root)))
    assert said["runtime_packs"] == []
    shown = rookhold("rootfs", "verify", str(root), "--sha256", said["manifest_sha256"].upper())
    assert shown.returncode == 0
    assert said["manifest_sha256"].encode() in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--sha256", "0" * 64), "rootfs_changed"),
        (("--uid-base", "1", "--workers", "256"), ""),
    ],
)
def test_verify_ends_with_1_where_a_gateway_would_not_start(
    rookhold: Rookhold, root: Path, arguments: tuple[str, ...], code: str
) -> None:
    ended = rookhold("rootfs", "verify", str(root), *arguments)
    if code:
        assert (ended.returncode, ended.stdout) == (1, b"")
        assert f"({code})" in ended.stderr.decode()
    else:  # root's files belong to none of these accounts
        assert ended.returncode == (1 if 1 <= os.geteuid() <= 256 else 0)


@pytest.mark.root
def test_verify_knows_the_accounts_of_jobs(rookhold: Rookhold, root: Path) -> None:
    os.chown(root / "etc/hosts", 300_001, 0)
    options = ("--uid-base", "300000")
    few = rookhold("rootfs", "verify", str(root), *options, "--workers", "1")
    assert b"(rootfs_foreign_owner)" in few.stderr
    more = rookhold("rootfs", "verify", str(root), *options, "--workers", "2")
    assert b"(rootfs_job_owned)" in more.stderr


def test_a_relative_path_is_judged_as_a_gateway_would(rookhold: Rookhold) -> None:
    ended = rookhold("rootfs", "verify", "rootfs")
    assert ended.returncode == 1
    assert b"(rootfs_not_absolute)" in ended.stderr


@pytest.mark.parametrize("text", ["", "abc", "g" * 64, "0" * 65])
def test_what_is_no_digest_is_wrong_usage(rookhold: Rookhold, root: Path, text: str) -> None:
    assert rookhold("rootfs", "verify", str(root), "--sha256", text).returncode == 64


def test_build_prints_the_digest_to_pin(rookhold: Rookhold, fake: FakeDebian) -> None:
    ended = rookhold("rootfs", "build", "made", "--json", **path(fake))
    assert (ended.returncode, ended.stderr) == (0, b"")
    said = json.loads(ended.stdout)
    assert said["runtime_packs"] == list(PACKS.values())
    shown = rookhold("rootfs", "manifest", "made")
    assert shown.stdout.decode().strip() == said["manifest_sha256"]
    again = rookhold("rootfs", "build", "made", **path(fake))
    assert (again.returncode, again.stdout) == (74, b"")


def test_build_tells_how_newer_packages_differ(rookhold: Rookhold, fake: FakeDebian) -> None:
    fake.installs(PINNED | {"bash": "99"})
    strict = rookhold("rootfs", "build", "strict", **path(fake))
    assert strict.returncode == 1
    assert b"(rootfs_packages_differ)" in strict.stderr
    newer = rookhold("rootfs", "build", "newer", "--newer", **path(fake))
    assert newer.returncode == 0
    assert f"bash: pinned {PINNED['bash']}, got 99".encode() in newer.stderr


def test_a_failed_build_shows_what_the_builder_said(rookhold: Rookhold, fake: FakeDebian) -> None:
    fake.says("E: the mirror is on fire")
    fake.ends(25)
    ended = rookhold("rootfs", "build", "made", **path(fake))
    assert (ended.returncode, ended.stdout) == (69, b"")
    assert b"E: the mirror is on fire" in ended.stderr
    assert b"(rootfs_build_failed)" in ended.stderr


def test_a_place_that_cannot_be_used_is_said_after_the_build(
    rookhold: Rookhold, fake: FakeDebian, tmp_path: Path
) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    ended = rookhold("rootfs", "build", str(tmp_path / "open" / "made"), **path(fake))
    assert ended.returncode == 0
    assert b"cannot be used where it is" in ended.stderr


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_build_that_is_told_to_end_leaves_nothing(
    fake: FakeDebian, environment: dict[str, str], tmp_path: Path, number: int, status: int
) -> None:
    fake.ends(after=600)
    place = tmp_path / "place"
    place.mkdir()
    called = fake.folder / "calls"
    called.touch()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "rookhold_cli", "rootfs", "build", str(place / "made")],
        env=environment | path(fake),
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + SECONDS
    while not called.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(SECONDS) == status
    ((_, _, pid),) = fake.calls
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list(place.iterdir()) == []


def test_the_accounts_of_jobs_are_the_servers_own() -> None:
    assert commands._SLOT_UID_BASE == SLOT_UID_BASE


def test_every_code_with_an_end_of_its_own_exists() -> None:
    codes = {error.code for error in errors.RootfsError.__subclasses__()}
    assert codes >= commands._EXITS.keys()
