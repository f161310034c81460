import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from rookhold_store import Store
from rookhold_store.testing import Jobs, TickingClock, anything_binds, tampering_connection
from rookhold_store.testing.specimen import Made, make

MEMORY = Path("/dev/shm")


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Where a database may be made: a real file, in memory where the system has a place for that.

    Hundreds of tests each make and sync a database; what a sync does to a disk is not their matter.
    """
    if not os.access(MEMORY, os.W_OK):
        yield tmp_path / "state" / "jobs.db"
        return
    directory = Path(tempfile.mkdtemp(prefix="rookhold-store-", dir=MEMORY))
    yield directory / "state" / "jobs.db"
    shutil.rmtree(directory)


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path, binding=anything_binds, clock=TickingClock()) as opened:
        yield opened


@pytest.fixture
def jobs(store: Store) -> Jobs:
    return Jobs(store)


@pytest.fixture
def raw(store: Store) -> Iterator[apsw.Connection]:
    db = tampering_connection(store.path)
    yield db
    db.close()


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("specimen") / "state" / "jobs.db")


@pytest.fixture
def made(original: Made, path: Path) -> Made:
    """A file with a row of every table in it, to be damaged."""
    path.parent.mkdir(mode=0o700)
    shutil.copy(original.path, path)
    return original._replace(path=path)
