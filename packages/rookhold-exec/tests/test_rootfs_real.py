"""The root file system that is built from Debian packages is fit, complete and always the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from rookhold_exec.rootfs import digest, find_in, manifest, pins, verify
from rookhold_exec.rootfs.build import build
from rookhold_types.runtimes import PACKS

pytestmark = pytest.mark.rootfs

SLOTS = range(210_000, 210_064)
PYTHON = """
import bz2, ctypes, decimal, hashlib, json, lzma, os, pwd, re, socket, sqlite3, ssl, sys, zoneinfo
print(json.dumps({
    "uid": os.getuid(), "name": pwd.getpwuid(os.getuid()).pw_name,
    "version": sys.version_info[:2], "zone": str(zoneinfo.ZoneInfo("Europe/Paris")),
    "compiled": sys.modules["decimal"].__cached__, "https": socket.getservbyname("https"),
}))
"""
NODE = """
console.log(JSON.stringify({user: require("os").userInfo().username, sum: [1, 2].at(-1),
  zone: new Intl.DateTimeFormat("de", {timeZone: "Europe/Paris"}).format(0)}))
"""
BASH = 'id -un; awk "BEGIN { print 6 * 7 }"; printf "b\\na\\n" | sort | sed -n 1p; date +%Z'


def test_it_verifies_and_offers_every_pack(rootfs_path: Path) -> None:
    found = verify(str(rootfs_path), uids=SLOTS)
    assert found.packs == tuple(PACKS.values())
    assert verify(str(rootfs_path), pinned=found.digest, uids=SLOTS) == found


def test_it_holds_every_interpreter(rootfs_path: Path) -> None:
    assert find_in(str(rootfs_path), "python3") == "/usr/bin/python3"
    assert find_in(str(rootfs_path), "node") == "/usr/bin/node"
    assert find_in(str(rootfs_path), "bash") == "/usr/bin/bash"
    assert find_in(str(rootfs_path), "rookhold") is None


def test_it_names_nothing_of_the_host_it_was_built_on(rootfs_path: Path) -> None:
    for name in ("etc/machine-id", "etc/hostname", "etc/resolv.conf", "etc/apt", "etc/shadow"):
        assert not (rootfs_path / name).exists()
    assert {path.name for path in (rootfs_path / "var").rglob("*")} == {
        "lib", "dpkg", "status", "tmp"
    }  # fmt: skip


def test_its_packages_are_those_of_the_list(rootfs_path: Path) -> None:
    installed = pins.installed((rootfs_path / "var/lib/dpkg/status").read_text())
    assert installed.keys() == pins.load().packages.keys()


def inside(rootfs: Path, *argv: str) -> str:
    done = subprocess.run(
        ["/usr/sbin/chroot", "--userspec=1000:1000", rootfs, *argv],
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
        capture_output=True,
        check=False,
        timeout=60,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.root
def test_python_runs_in_it_with_its_whole_library(rootfs_path: Path) -> None:
    said = json.loads(inside(rootfs_path, "python3", "-c", PYTHON))
    assert (said["uid"], said["name"], said["zone"]) == (1000, "job", "Europe/Paris")
    assert said["https"] == 443
    assert Path(rootfs_path, said["compiled"].lstrip("/")).is_file()


@pytest.mark.root
def test_node_runs_in_it(rootfs_path: Path) -> None:
    said = json.loads(inside(rootfs_path, "node", "-e", NODE))
    assert said == {"user": "job", "sum": 2, "zone": "1.1.1970"}


@pytest.mark.root
def test_bash_runs_in_it_with_what_scripts_expect(rootfs_path: Path) -> None:
    assert inside(rootfs_path, "bash", "-c", BASH).split() == ["job", "42", "a", "UTC"]


def test_its_bytecode_is_never_compared_with_its_source(rootfs_path: Path) -> None:
    cached = list((rootfs_path / "usr/lib/python3.11").rglob("*.pyc"))
    assert len(cached) > 400
    # PEP 552: bit 0 says "by hash", bit 1 "check the source".
    assert {path.read_bytes()[4:8] for path in cached} == {b"\1\0\0\0"}


@pytest.mark.root
@pytest.mark.soak
def test_a_second_build_of_the_same_packages_has_the_same_digest(
    rootfs_path: Path, tmp_path: Path
) -> None:
    again = build(str(tmp_path / "again"), newer=True)
    first, second = (manifest(str(path)) for path in (rootfs_path, tmp_path / "again"))
    packages = (rootfs_path / "var/lib/dpkg/status").read_bytes()
    if (tmp_path / "again/var/lib/dpkg/status").read_bytes() == packages:
        assert again.digest == digest(first)
        assert first == second
    else:  # Debian has released newer ones since the first was built
        assert again.digest != digest(first)
