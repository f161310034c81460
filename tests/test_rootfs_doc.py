"""Every command that docs/rootfs.md shows works as shown, on a stand-in for Debian's mirror."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from fake_debian import FakeDebian

from rookhold_exec.rootfs import digest, pins
from rookhold_server.config.variables import PARSERS

PAGE = (Path(__file__).resolve().parent.parent / "docs/rootfs.md").read_text("utf-8")
SHELL = [text.strip() for text in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)]
PATIENCE = 120


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "srv").mkdir(mode=0o755)
    return tmp_path / "srv"


def test_its_commands_lead_from_nothing_to_a_verified_root(place: Path, tmp_path: Path) -> None:
    fake = FakeDebian(tmp_path / "fake")
    fake.installs(dict(pins.load().packages))
    path = f"{fake.folder}:{Path(sys.executable).parent}:/usr/bin:/bin"
    said = []
    for line in SHELL:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line.replace("/srv/rookhold", str(place))],
            cwd=tmp_path,
            env={"PATH": path, "HOME": str(tmp_path), "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)
        said.append(done.stdout)
    assert [line.split()[2] for line in SHELL] == ["build", "build", "manifest", "verify"]
    kept = (tmp_path / "manifest.txt").read_bytes()
    assert said[2].strip() == digest(kept)
    assert said[0] == said[3]
    assert sorted(made.name for made in place.iterdir()) == ["rootfs", "rootfs-newer"]


def test_its_settings_exist() -> None:
    named = set(re.findall(r"ROOKHOLD_[A-Z0-9_]+", PAGE))
    assert named <= PARSERS.keys()


def test_its_manifest_is_what_a_manifest_looks_like() -> None:
    shown = next(
        text for text in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) if "dir " in text
    )
    first, *lines = shown.splitlines()
    assert first == "rookhold-rootfs-manifest 1"
    entry = r"(dir|file|link) [0-7]{4} \d+ \d+ (\d+|-) (\S+) (/\S*)"
    assert all(re.fullmatch(entry, line) for line in lines)
    paths = [line.split()[-1] for line in lines]
    assert paths == sorted(paths)


@pytest.mark.rootfs
def test_the_lines_it_shows_are_those_of_the_real_one(rootfs_path: Path) -> None:
    from rookhold_exec.rootfs import manifest

    shown = next(
        text for text in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) if "dir " in text
    )
    if rootfs_path.stat().st_uid == 0:
        assert set(shown.splitlines()) <= set(manifest(str(rootfs_path)).decode().splitlines())
