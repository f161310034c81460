from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from rookhold_store import Store
from rookhold_store.testing import Jobs, TickingClock, anything_binds, tampering_connection


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "jobs.db"


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
