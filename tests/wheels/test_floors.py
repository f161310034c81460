"""The lowest versions that the wheels declare are true: their own tests pass on them.

On the oldest supported Python, because a newer one may have no build of a floor. The quick run
takes, of each wheel, the tests that lean most on what it depends on; `make soak` takes all.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
from installing import ROOT, WHEELS
from packaging.requirements import Requirement
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from installing import Environment

LOCK = ROOT / "requirements-floor.lock"
SOAK_SECONDS = 900
QUICK = {
    "rookhold-attestation": ["test_ed25519.py", "test_keys.py", "test_sign.py"],
    "rookhold-cli": ["test_output.py", "test_job_options.py"],
    "rookhold-exec": ["test_cgroup.py", "test_discovery.py", "test_protocol.py"],
    "rookhold-server": ["http/test_service.py", "http/test_submission.py", "config", "identity"],
    "rookhold-store": ["test_accept.py", "test_finalise.py", "test_schema.py"],
    "rookhold-types": ["test_wire.py", "test_jobs.py", "test_views.py", "test_receipts.py"],
}


def declared() -> Iterator[tuple[str, Requirement]]:
    for wheel in WHEELS:
        text = (ROOT / "packages" / wheel / "pyproject.toml").read_text("utf-8")
        project = tomllib.loads(text)["project"]
        extras = project.get("optional-dependencies", {}).values()
        for line in [*project["dependencies"], *(line for extra in extras for line in extra)]:
            yield wheel, Requirement(line)


def floor_of(requirement: Requirement) -> Version:
    (floor,) = [part.version for part in requirement.specifier if part.operator == ">="]
    return Version(floor)


def test_every_dependency_has_a_floor_and_the_lock_of_floors_holds_exactly_that() -> None:
    locked = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text("utf-8"), re.MULTILINE))
    for wheel, requirement in declared():
        if not requirement.name.startswith("rookhold"):
            assert Version(locked[requirement.name]) == floor_of(requirement), wheel


def test_a_ceiling_has_a_reason_beside_it() -> None:
    for wheel, requirement in declared():
        if any(part.operator in {"<", "<=", "==", "~="} for part in requirement.specifier):
            text = (ROOT / "packages" / wheel / "pyproject.toml").read_text("utf-8")
            (line,) = [line for line in text.splitlines() if f'"{requirement.name}>' in line]
            assert re.search(r"# \w+ \w+", line), line


@pytest.fixture(scope="session")
def floors(dist: Path, environment: Callable[[str], Environment]) -> Environment:
    """Every wheel of ours on the lowest versions of everything else, with the test tools."""
    fetch_floors()
    env = environment("floors")
    folders = [ROOT / "wheelhouse", ROOT / "wheelhouse-floor"]
    env.install("--require-hashes", "--requirement", LOCK, folders=folders)
    env.install("--no-deps", *WHEELS, folders=[dist])
    return env


def fetch_floors() -> None:
    argv = [sys.executable, ROOT / "tools" / "floors.py"]
    subprocess.run(argv, check=True, timeout=SOAK_SECONDS)


@pytest.mark.online
@pytest.mark.oldest_python
def test_the_floors_do_not_contradict_each_other(floors: Environment) -> None:
    installed = floors.installed()
    for wheel, requirement in declared():
        assert installed[requirement.name] in requirement.specifier, wheel


@pytest.mark.online
@pytest.mark.oldest_python
@pytest.mark.parametrize("wheel", sorted(QUICK))
def test_a_wheel_passes_its_tests_on_its_floors(wheel: str, floors: Environment) -> None:
    run_tests(floors, *(f"packages/{wheel}/tests/{name}" for name in QUICK[wheel]))


@pytest.mark.soak
@pytest.mark.online
@pytest.mark.oldest_python
@pytest.mark.parametrize("wheel", WHEELS)
def test_a_wheel_passes_all_its_tests_on_its_floors(wheel: str, floors: Environment) -> None:
    run_tests(floors, f"packages/{wheel}/tests")


def run_tests(env: Environment, *paths: str) -> None:
    """Run them with the checkout's settings, but on the wheels that are installed."""
    argv = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", *paths]
    done = env.python(*argv, cwd=ROOT, timeout=SOAK_SECONDS)
    assert re.search(r"\d+ passed", done.stdout), done.stdout
