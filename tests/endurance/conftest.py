"""Long runs on each backend that confines: many jobs in a row, kills at random, cancels.

Few of each among all tests, many with `make soak`. What a run measured is its last line; with
`ROOKHOLD_SOAK_LOG` a folder keeps every line.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from endurance.executor import Executor
from endurance.soaklog import say
from hostile.leftovers import Before
from isolating import ISOLATING, NAMED

from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from isolating import Isolating

__all__ = ["say"]

WORKERS = 2
UID_BASE = 600_000 + os.getpid() % 4096 * WORKERS  # nobody else's, so that what is left is ours


@pytest.fixture(params=ISOLATING)
def backend(request: pytest.FixtureRequest) -> Isolating:
    return NAMED[request.param]


@pytest.fixture
def executor(backend: Isolating, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    """An executor of the backend, opened; after it closes nothing of it may be left."""
    root = tmp_path_factory.mktemp("jobs")
    before = Before(root, uids=range(UID_BASE, UID_BASE + WORKERS))
    settings = ExecSettings(
        workers=WORKERS, uid_base=UID_BASE, jobs_root=str(root), **backend.executor()
    )
    harness = Harness(choose_backend(backend.name, settings))
    try:
        harness.do(harness.executor.open())
        yield Executor(harness, before)
    finally:
        harness.close()
    assert before.left_after_close() == []
