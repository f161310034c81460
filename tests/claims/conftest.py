"""Two gateways of each backend: the real one, and one whose sandboxes a twin can weaken.

Each is started when the first test asks for it. `namespaces` needs control groups of version 2,
so that its tests run in the VM; vm/suites.py says which.
"""

from __future__ import annotations

import os
import pickle
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from claims.jobs import Jobs
from gateway import Gateway
from isolating import ISOLATING, NAMED, private_place

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parent.parent
WORKERS = 4
SETTINGS = {
    "ROOKHOLD_RATE_PER_MIN": "1000000",
    "ROOKHOLD_WORKERS": str(WORKERS),
    "ROOKHOLD_NODE": "none",
    "ROOKHOLD_BASH": "none",
}


def provider(directory: Path) -> str:
    """Install the weakened executors in `directory`; return the path to import them from."""
    about = directory / "weakened-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: weakened\nVersion: 1\n")
    (about / "entry_points.txt").write_text(
        "[rookhold.executors]\n"
        "weakened-off = claims.sabotage:off\n"
        "weakened-namespaces-dev = claims.sabotage:namespaces_dev\n"
        "weakened-namespaces = claims.sabotage:namespaces\n"
        "weakened-gvisor = claims.sabotage:gvisor\n"
    )
    return f"{directory}:{TESTS}"


def settings(name: str) -> dict[str, str]:
    """Return what a gateway of this backend is told, with the digest of a reviewed root."""
    if name not in NAMED:
        return {}
    told = NAMED[name].settings()
    if "ROOKHOLD_ROOTFS" in told:
        found = surveyed(name)
        assert found is not None
        told["ROOKHOLD_GVISOR_ROOTFS_SHA256"] = found["found"]["rootfs_sha256"]
    return told


def surveyed(name: str) -> dict[str, Any] | None:
    """Return what this host was found to offer a backend, where it takes seconds to find out."""
    if name == "gvisor":
        import gvisor

        return gvisor.surveyed("ptrace")
    told: dict[str, Any] | None = NAMED[name].executor().get("surveyed")
    return told


class Gateways:
    """The gateways of this run, each started when the first test asks for it."""

    def __init__(self, factory: pytest.TempPathFactory, place: Path, stack: ExitStack) -> None:
        self._factory = factory
        self._place = place
        self._stack = stack
        self._jobs: dict[str, Jobs] = {}

    def real(self, name: str) -> Jobs:
        return self._serve(name, name)

    def weakened(self, name: str) -> Jobs:
        found = self._factory.mktemp("provider")
        more = {"PYTHONPATH": provider(found)}
        if name in NAMED and (told := surveyed(name)) is not None:
            (found / "surveyed").write_bytes(pickle.dumps(told))
            more["CLAIMS_SURVEYED"] = str(found / "surveyed")
        return self._serve(f"weakened-{name}", name, more)

    def _serve(self, sandbox: str, name: str, more: dict[str, str] | None = None) -> Jobs:
        if sandbox not in self._jobs:
            uid_base = 600_000 + (os.getpid() % 10_000) * 64 + len(self._jobs) * WORKERS
            told = {
                **SETTINGS,
                "ROOKHOLD_SANDBOX_UID_BASE": str(uid_base),
                **settings(name),
                **(more or {}),
            }
            gateway = Gateway(self._place / sandbox, sandbox=sandbox, **told)
            self._jobs[sandbox] = Jobs(self._stack.enter_context(gateway), NAMED.get(name))
        return self._jobs[sandbox]


@pytest.fixture(scope="session")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    with private_place() as place, ExitStack() as stack:
        yield Gateways(tmp_path_factory, place, stack)


@pytest.fixture(params=ISOLATING)
def backend(request: pytest.FixtureRequest) -> str:
    """Every backend that confines; `claims.backends.on` chooses some of them."""
    return str(request.param)


@pytest.fixture
def confined(backend: str, gateways: Gateways) -> Jobs:
    return gateways.real(backend)


@pytest.fixture
def weakened(backend: str, gateways: Gateways) -> Jobs:
    return gateways.weakened(backend)


@pytest.fixture
def watched(gateways: Gateways) -> Jobs:
    """The backend `off`: watched, but not confined. Nothing hostile may run here."""
    return gateways.real("off")


@pytest.fixture
def unwatched(gateways: Gateways) -> Jobs:
    return gateways.weakened("off")
