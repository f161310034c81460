"""What a verification may cost: memory that does not grow, a log that is not kept for long."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from rookhold_store import Store
from rookhold_store.source import Source
from rookhold_store.testing import Jobs, TickingClock, anything_binds
from rookhold_store.verify import Verification

MIB = 1024 * 1024
PROGRAM = (
    "import resource, sys\n"
    "from rookhold_store.testing import anything_binds\n"
    "from rookhold_store.verify import verify\n"
    "assert list(verify(sys.argv[1], binding=anything_binds)) == []\n"
    "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
)


def peak_mib(path: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return int(done.stdout) / 1024


def fill(path: Path, jobs: int, *, lines: int, artifact: int) -> Path:
    with Store.open(path, binding=anything_binds, clock=TickingClock()) as store:
        made = Jobs(store)
        for _ in range(jobs):
            job_id = made.running()
            for _ in range(lines // 250):
                made.append(job_id, *("x" * 1000 for _ in range(250)))
            made.finalise(job_id)
            store.call(made.attestation(job_id, result_artifact=b"a" * artifact))
    return path


def test_memory_is_that_of_one_artifact_however_many_there_are(path: Path) -> None:
    few = peak_mib(fill(path.with_name("few.db"), 1, lines=250, artifact=4 * MIB))
    many = peak_mib(fill(path.with_name("many.db"), 16, lines=1000, artifact=4 * MIB))
    assert many < few + 12  # the larger file holds 80 MiB


@pytest.mark.soak
def test_memory_does_not_grow_with_the_number_of_jobs(path: Path) -> None:
    few = peak_mib(fill(path.with_name("few.db"), 100, lines=0, artifact=100))
    many = peak_mib(fill(path.with_name("many.db"), 30_000, lines=0, artifact=100))
    assert many < few + 12


def test_a_check_of_the_pages_that_keeps_too_long_a_log_is_given_up_and_said(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    Jobs(store).finished()
    monkeypatch.setattr("rookhold_store.verify.integrity._STEPS", 1)
    monkeypatch.setattr("rookhold_store.verify.run.LOG_GROWTH_MAX", -1)
    with closing(Source(store.path)) as source:
        run = Verification(source, binding=anything_binds)
        assert list(run.findings()) == []
        assert len(run.unchecked) == 1
        assert not source.db.in_transaction
