"""A file with a row of every table in it, to be damaged."""

import shutil
from pathlib import Path

import pytest

from rookhold_store.specimen import Made, make


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("verify") / "state" / "jobs.db")


@pytest.fixture
def made(original: Made, path: Path) -> Made:
    """A copy to be damaged."""
    path.parent.mkdir(mode=0o700)
    shutil.copy(original.path, path)
    return original._replace(path=path)
