"""Of the failure reports what only an executor shows; all of them are replayed in `tests/reports`.

There they go over HTTP on every backend that confines. Here is what HTTP hides: the memory of the
process that reads the pipes, what a record is made of, more stdin than a request may carry, and an
environment and a working directory that the server itself would not have.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookhold_exec.executor import KillReason, OutputRecord
from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness
from rookhold_types.limits import Limits
from rookhold_types.states import JobStatus

MIB = 1 << 20


def _open(backend: str, root: Path) -> Harness:
    harness = Harness(choose_backend(backend, ExecSettings(jobs_root=str(root))))
    harness.do(harness.executor.open())
    return harness


@pytest.fixture(
    scope="module",
    params=[pytest.param("namespaces-dev", marks=pytest.mark.linux_ns), "off"],
)
def either(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Harness]:
    """Every backend here, for programs that do no harm."""
    harness = _open(request.param, tmp_path_factory.mktemp("jobs"))
    yield harness
    harness.close()


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """An isolating backend, for programs that would."""
    harness = _open("namespaces-dev", tmp_path_factory.mktemp("jobs"))
    yield harness
    harness.close()


@pytest.mark.linux_ns
def test_fr02_a_chain_neither_delays_another_slot_nor_outlives_its_limit(sandbox: Harness) -> None:
    code = "bomb() { bomb | bomb & }; bomb; sleep 30"

    async def scenario() -> None:
        limits = Limits(max_pids=32, mem_mb=128, wall_seconds=3, cpu_seconds=60)
        plan = sandbox.plan("bash", code, limits=limits, slot=0)
        bomb = asyncio.ensure_future(sandbox.finish(plan))
        await asyncio.sleep(0.5)
        for _ in range(3):
            other = await sandbox.finish(sandbox.plan("python", "print(1)", slot=1))
            assert other.stdout == b"1\n"
            assert other.seconds < 5
        result = await bomb
        assert result.report.status in {JobStatus.FAILED, JobStatus.TIMED_OUT}
        assert result.report.wall_time_ms < 8000

    sandbox.do(scenario())


@pytest.mark.parametrize(
    ("language", "code"),
    [("python", "while True: print('1234567890')"), ("bash", "yes | tr -d '\\n'")],
    ids=["lines", "one endless line"],
)
def test_fr04_who_reads_a_flood_stays_small(either: Harness, language: str, code: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limits = Limits(wall_seconds=1, cpu_seconds=20)
    for _ in range(2):
        result = either.run(language, code, limits=limits)
        assert result.report.stdout.bytes_offered <= MIB
        assert result.report.stdout.bytes_seen > MIB
        assert result.truncated == ["stdout"]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 * 1024


def test_fr04_an_endless_line_comes_as_it_is_written(either: Harness) -> None:
    code = "import sys, time; sys.stdout.write('x' * 20000); sys.stdout.flush(); time.sleep(30)"

    async def scenario() -> None:
        running = await either.executor.start(either.plan("python", code))
        async for event in running.events():
            if isinstance(event, OutputRecord):
                running.kill(KillReason.CANCELLED)
        report = await running.wait()
        assert report.status is JobStatus.CANCELLED
        assert report.wall_time_ms < 10_000

    either.do(scenario())


def test_fr05_a_record_is_raw_only_where_its_text_is_not_its_bytes(either: Harness) -> None:
    whole = either.run("python", "import sys; sys.stdout.write('\\u20ac' * 100_000)")
    assert all(e.raw is None for e in whole.events if isinstance(e, OutputRecord))
    cut = either.run("python", "import sys; sys.stdout.write('\\u20ac' * 400_000)")
    records = [event for event in cut.events if isinstance(event, OutputRecord)]
    assert [event.raw is None for event in records] == [True] * (len(records) - 1) + [False]
    assert records[-1].line.endswith("\ufffd")
    assert len(cut.stdout) == MIB
    assert MIB % 3


@pytest.mark.linux_ns
def test_fr10_what_surrounds_the_executor_is_not_in_proc(sandbox: Harness) -> None:
    secret = "rookhold-secret-canary"
    os.environ["ROOKHOLD_API_KEY"] = secret
    code = (
        "import glob, os\n"
        "pids = sorted(int(p) for p in os.listdir('/proc') if p.isdigit())\n"
        "print(pids == [os.getpid()])\n"
        "for path in glob.glob('/proc/[0-9]*/*') + glob.glob('/proc/[0-9]*/fd/*'):\n"
        "    try:\n"
        "        linked = os.path.islink(path)\n"
        "        text = os.readlink(path) if linked else open(path, 'rb').read(1 << 20)\n"
        "    except (OSError, ValueError): continue\n"
        "    print(path, text)\n"
    )
    try:
        result = sandbox.run("python", code)
    finally:
        del os.environ["ROOKHOLD_API_KEY"]
    assert result.stdout.startswith(b"True\n")
    repository = str(Path(__file__).resolve().parents[3]).encode()
    for word in (secret.encode(), b"rookhold", b"launcher", repository):
        assert word not in result.stdout


def test_fr12_five_mebibytes_of_stdin_unread_hold_nobody_up(either: Harness) -> None:
    result = either.run("bash", "echo done", stdin=b"x" * (5 * MIB))
    assert result.stdout == b"done\n"
    assert result.seconds < 5
