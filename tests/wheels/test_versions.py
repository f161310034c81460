"""Each wheel has a version of its own, in one place, and is released on its own."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
from installing import ROOT, WHEELS, build

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from installing import Environment

NEXT = "0.7.0"
CONSTANT = re.compile(r'^__version__\b[^=\n]*= "([^"]+)"$', re.MULTILINE)
RELEASE_SECONDS = 120


def version_of(wheel: str) -> str:
    text = (ROOT / "packages" / wheel / "pyproject.toml").read_text("utf-8")
    version: str = tomllib.loads(text)["project"]["version"]
    return version


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what a release needs of the workspace, to be changed."""
    place = tmp_path / "a copy"
    place.mkdir()
    for name in ("pyproject.toml", "uv.lock", "Makefile", ".gitignore"):
        shutil.copy(ROOT / name, place / name)
    ignored = shutil.ignore_patterns("__pycache__", ".*", "tests")
    shutil.copytree(ROOT / "packages", place / "packages", ignore=ignored)
    shutil.copytree(ROOT / "tools", place / "tools", ignore=ignored)
    (place / "wheelhouse").mkdir()
    return place


def bump(place: Path, wheel: str, to: str = NEXT) -> None:
    """Change what is to be changed for a new version: pyproject, constants, changelog."""
    package = place / "packages" / wheel
    for path in [package / "pyproject.toml", *package.glob("src/**/*.py")]:
        text = path.read_text("utf-8")
        changed = re.sub(
            r'^((?:__)?version(?:__)?\b[^=\n]*= )"0\.1\.0"$', rf'\1"{to}"', text, flags=re.M
        )
        if changed != text:
            path.write_text(changed, "utf-8")
    log = package / "CHANGELOG.md"
    log.write_text(
        log.read_text("utf-8").replace("## Unreleased", f"## {to} - 2026-12-24"), "utf-8"
    )


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.*")}


@pytest.mark.parametrize("wheel", WHEELS)
def test_a_constant_in_the_wheel_says_the_version_of_its_pyproject(wheel: str) -> None:
    for path in (ROOT / "packages" / wheel / "src").rglob("*.py"):
        for found in CONSTANT.findall(path.read_text("utf-8")):
            assert found == version_of(wheel), path.name


@pytest.mark.parametrize("wheel", ["rookhold-types", "rookhold-server"])
def test_a_new_version_of_one_wheel_leaves_the_others_byte_for_byte_the_same(
    wheel: str, copy: Path, dist: Path
) -> None:
    bump(copy, wheel)
    build(copy, copy / "dist", "--all-packages")
    before, after = digests(dist), digests(copy / "dist")
    stem = wheel.replace("-", "_")
    changed = {f"{stem}-{NEXT}-py3-none-any.whl", f"{stem}-{NEXT}.tar.gz"}
    assert after.keys() - before.keys() == changed
    assert {name for name in before if after.get(name) != before[name]} == {
        name for name in before if name.startswith(f"{stem}-")
    }


def test_wheels_take_each_other_by_floor_and_version_says_what_is_there(
    copy: Path, dist: Path, environment: Callable[[str], Environment]
) -> None:
    bump(copy, "rookhold-sdk")
    build(copy, copy / "dist", "--package", "rookhold-sdk")
    env = environment("newer-sdk")
    env.install("rookhold-cli", folders=[ROOT / "wheelhouse", dist, copy / "dist"])
    told = json.loads(env.run("rookhold", "version", "--json").stdout)["wheels"]
    assert (told["rookhold-sdk"], told["rookhold-cli"]) == (NEXT, version_of("rookhold-cli"))


@pytest.fixture
def repository(copy: Path) -> Path:
    git(copy, "init", "--quiet", "--initial-branch", "main")
    commit(copy)
    return copy


def git(place: Path, *argv: str) -> str:
    who = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org"}
    who |= {name.replace("AUTHOR", "COMMITTER"): value for name, value in who.items()}
    return subprocess.run(
        ["git", *argv], cwd=place, env=os.environ | who, check=True, capture_output=True, text=True
    ).stdout


def commit(place: Path) -> None:
    git(place, "add", "--all")
    git(place, "commit", "--quiet", "--message", "A state to release from")


def release(place: Path, wheel: str) -> subprocess.CompletedProcess[str]:
    """Run `make release` there, with the tools that run these tests."""
    tools = os.path.dirname(sys.executable)  # noqa: PTH120 - not resolved: it is a venv's
    (place.parent / "tools").unlink(missing_ok=True)
    (place.parent / "tools").symlink_to(tools)  # the Makefile's own paths hold no space
    return subprocess.run(
        ["make", "--no-print-directory", "release", f"WHEEL={wheel}", "BIN=../tools"],
        cwd=place,
        env=os.environ | {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org"},
        check=False,
        capture_output=True,
        text=True,
        timeout=RELEASE_SECONDS,
    )


def test_a_release_builds_and_tags_that_wheel_alone(repository: Path) -> None:
    bump(repository, "rookhold-store")
    commit(repository)
    done = release(repository, "rookhold-store")
    assert done.returncode == 0, done.stderr
    assert git(repository, "tag").split() == [f"rookhold-store-v{NEXT}"]
    assert {path.name for path in (repository / "dist").glob("*.*")} - {".gitignore"} == {
        f"rookhold_store-{NEXT}-py3-none-any.whl",
        f"rookhold_store-{NEXT}.tar.gz",
    }
    notes = git(repository, "tag", "--list", "--format", "%(contents)")
    assert notes.startswith(f"rookhold-store {NEXT}\n")
    assert "### Added" in notes


def test_a_release_is_made_from_what_is_committed_and_nothing_that_lies_about(
    repository: Path,
) -> None:
    bump(repository, "rookhold-types")
    commit(repository)
    stray = repository / "packages/rookhold-types/src/rookhold_types/__pycache__/stray.pyc"
    stray.parent.mkdir()
    stray.write_bytes(b"ignored, so the tree is clean")
    kept = repository / "packages/rookhold-types/src/rookhold_types/build/stray.py"
    kept.parent.mkdir()
    kept.write_text("ignored too\n")
    assert release(repository, "rookhold-types").returncode == 0
    (wheel,) = (repository / "dist").glob("*.whl")
    assert b"stray" not in wheel.read_bytes()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda place: (place / "new.txt").write_text("x"), "not committed"),
        (lambda place: git(place, "tag", f"rookhold-sdk-v{NEXT}"), "exists"),
        (lambda place: unnoted(place), "CHANGELOG.md has no section"),
        (lambda place: unequal(place), "pyproject.toml says"),
    ],
    ids=["changes", "tagged", "changelog", "constant"],
)
def test_a_release_that_may_not_be_is_refused_and_leaves_no_tag(
    spoil: Callable[[Path], object], why: str, repository: Path
) -> None:
    bump(repository, "rookhold-sdk")
    commit(repository)
    spoil(repository)
    tags = git(repository, "tag")
    done = release(repository, "rookhold-sdk")
    assert done.returncode != 0
    assert why in done.stderr
    assert git(repository, "tag") == tags
    assert not (repository / "dist").exists()


def unnoted(place: Path) -> None:
    log = place / "packages/rookhold-sdk/CHANGELOG.md"
    log.write_text(log.read_text("utf-8").replace(f"## {NEXT}", "## Unreleased"), "utf-8")
    commit(place)


def unequal(place: Path) -> None:
    constant = place / "packages/rookhold-sdk/src/rookhold/_version.py"
    constant.write_text(constant.read_text("utf-8").replace(NEXT, "0.6.9"), "utf-8")
    commit(place)


def test_a_release_of_no_such_wheel_is_refused(repository: Path) -> None:
    done = release(repository, "rookhold")
    assert done.returncode != 0
    assert "rookhold-types" in done.stderr
