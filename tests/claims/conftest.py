"""Two gateways of each backend: the real one, and one whose sandboxes a twin can weaken."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from claims.jobs import Jobs
from gateway import Gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent.parent
UNLIMITED = {"ROOKHOLD_RATE_PER_MIN": "1000000", "ROOKHOLD_WORKERS": "4"}


def provider(directory: Path) -> str:
    """Install the weakened executors in `directory`; return the path to import them from."""
    about = directory / "weakened-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: weakened\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[rookhold.executors]\n"
        "weakened-namespaces-dev = claims.sabotage:namespaces_dev\n"
        "weakened-off = claims.sabotage:off\n"
    )
    return f"{directory}:{TESTS}"


def serve(factory: pytest.TempPathFactory, sandbox: str, **settings: str) -> Iterator[Jobs]:
    home = factory.mktemp("gateway") / "home"
    with Gateway(home, sandbox=sandbox, **UNLIMITED, **settings) as gateway:
        yield Jobs(gateway)


def serve_weakened(factory: pytest.TempPathFactory, backend: str) -> Iterator[Jobs]:
    path = provider(factory.mktemp("provider"))
    return serve(factory, f"weakened-{backend}", PYTHONPATH=path)


@pytest.fixture(scope="session")
def confined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    yield from serve(tmp_path_factory, "namespaces-dev")


@pytest.fixture(scope="session")
def weakened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    yield from serve_weakened(tmp_path_factory, "namespaces-dev")


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """The backend `off`: watched, but not confined. Nothing hostile may run here."""
    yield from serve(tmp_path_factory, "off")


@pytest.fixture(scope="session")
def unwatched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    yield from serve_weakened(tmp_path_factory, "off")
