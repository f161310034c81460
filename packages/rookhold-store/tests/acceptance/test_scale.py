"""What a store costs with a long past: no more than with a short one."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from rookhold_store import Store
from rookhold_store.testing import anything_binds
from rookhold_store.testing.paces import Paces, compare
from rookhold_store.testing.population import Population, kept

FEW = 1_000
MANY = 50_000
DEARER = 1.2  # times as much is still the same
TURNS = 60
ROUNDS = 6  # of those turns: a busy machine spoils one, growth shows in all of them
OPEN_SECONDS = 2.0
MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 2 * 1024**3
OPENS_AND_WRITES = """
import sys
from rookhold_store import Store
from rookhold_store.testing import Jobs, anything_binds
store = Store.open(sys.argv[1], binding=anything_binds)
jobs = Jobs(store)
while True:
    jobs.finished(tenant="acme")
    print("one more", flush=True)
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Where copies are worked on: in memory, where a disk's moods would hide what SQLite does."""
    held = MEMORY if os.access(MEMORY, os.W_OK) else None
    if held is not None and shutil.disk_usage(held).free < MEMORY_NEEDED:
        held = None
    with tempfile.TemporaryDirectory(prefix="rookhold-scale-", dir=held) as directory:
        yield Path(directory)


def copy_of(jobs: int, place: Path, pytestconfig: pytest.Config) -> Path:
    """Return a private copy of a store with so many jobs; the first run makes what is copied."""
    path = Path(tempfile.mkdtemp(dir=place)) / "store.db"
    shutil.copyfile(kept(pytestconfig.rootpath / ".cache", jobs), path)
    path.chmod(0o600)
    return path


def too_dear(few: Path, many: Path, jobs: int) -> dict[str, float]:
    """Return by how much the dearest operations are dearer on the large store, if they are."""
    with (
        Store.open(few, binding=anything_binds) as small_store,
        Store.open(many, binding=anything_binds) as large_store,
    ):
        small = Paces(small_store, Population(FEW))
        large = Paces(large_store, Population(jobs))
        least: dict[str, float] = {}
        for seed in range(ROUNDS):
            for name, pair in compare(small, large, turns=TURNS, seed=seed).items():
                least[name] = min(pair.ratio, least.get(name, pair.ratio))
            dear = {name: ratio for name, ratio in least.items() if ratio > DEARER}
            if not dear:
                break
    assert len(least) > 25
    return dear


def test_s12_with_many_retained_jobs_everything_costs_what_it_costs_with_few(
    place: Path, pytestconfig: pytest.Config
) -> None:
    few, many = (copy_of(jobs, place, pytestconfig) for jobs in (FEW, MANY))
    assert too_dear(few, many, MANY) == {}
    shutil.rmtree(many.parent)


@pytest.mark.soak
def test_s12_with_a_million_retained_jobs_everything_costs_what_it_costs_with_few(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    few, many = (copy_of(jobs, tmp_path, pytestconfig) for jobs in (FEW, 1_000_000))
    assert too_dear(few, many, 1_000_000) == {}
    many.unlink()


def steps_of_an_open(path: Path) -> int:
    """Return how many instructions SQLite's machine takes while a store is opened and closed."""
    steps = 0

    def count(event: dict[str, object]) -> None:
        nonlocal steps
        status = event["stmt_status"]
        assert isinstance(status, dict)
        steps += status["SQLITE_STMTSTATUS_VM_STEP"]

    def watch(db: apsw.Connection) -> None:
        db.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)

    apsw.connection_hooks.append(watch)
    try:
        Store.open(path, binding=anything_binds).close()
    finally:
        apsw.connection_hooks.remove(watch)
    return steps


def test_an_open_takes_as_many_steps_with_many_jobs_as_with_few(
    place: Path, pytestconfig: pytest.Config
) -> None:
    few, many = (copy_of(jobs, place, pytestconfig) for jobs in (FEW, MANY))
    assert steps_of_an_open(many) <= steps_of_an_open(few) * DEARER
    shutil.rmtree(many.parent)


def test_a_store_with_many_jobs_opens_within_two_seconds_of_a_kill(
    place: Path, pytestconfig: pytest.Config
) -> None:
    many = copy_of(MANY, place, pytestconfig)
    killed = subprocess.Popen(
        [sys.executable, "-c", OPENS_AND_WRITES, many], stdout=subprocess.PIPE, text=True
    )
    assert killed.stdout is not None
    with killed.stdout as said:
        for _ in range(20):
            assert said.readline() == "one more\n"
        killed.send_signal(signal.SIGKILL)
        killed.wait(timeout=60)
    began = time.perf_counter()
    with Store.open(many, binding=anything_binds) as store:
        taken = time.perf_counter() - began
        assert len(store.read.list_jobs("acme", 50)) == 50
    assert taken < OPEN_SECONDS
    shutil.rmtree(many.parent)
