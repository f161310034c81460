"""The wheels, built once, and an environment for each of them on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from gateway import Gateway
from installing import ROOT, Environment, build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

WHEELHOUSE = ROOT / "wheelhouse"


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert WHEELHOUSE.is_dir(), "these tests install from wheelhouse/, which `make setup` fills"
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, folder, "--all-packages")
    return folder


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Environment]:
    """Make an empty environment of that name; all share the cache of what was built from source."""
    place = tmp_path_factory.mktemp("environments")

    def make(name: str) -> Environment:
        return Environment(place / name, cache=place / "cache")

    return make


@pytest.fixture(scope="session")
def alone(dist: Path, environment: Callable[[str], Environment]) -> Callable[[str], Environment]:
    """Return the environment that holds this requirement and what it declares, made once."""
    made: dict[str, Environment] = {}

    def get(requirement: str) -> Environment:
        if requirement not in made:
            made[requirement] = environment(requirement)
            made[requirement].install(requirement, folders=[WHEELHOUSE, dist])
        return made[requirement]

    return get


@pytest.fixture(scope="session")
def served(
    alone: Callable[[str], Environment], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gateway]:
    """A signing gateway that runs from the installed server wheel."""
    python = str(alone("rookhold-server").bin / "python")
    with Gateway(tmp_path_factory.mktemp("served") / "home", python=python) as gateway:
        yield gateway
