"""After all of them (this file is the last): nothing is left over, and the server has not grown."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest
from faults.leftovers import descriptors, resident_kib, threads
from hostile.target import NotIsolatingError, Target

from rookhold_exec.select import choose_backend
from rookhold_exec.settings import ExecSettings
from rookhold_exec.testing import Harness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROUNDS = 6
WARM = 2  # of them: what the allocator keeps for next time grows at first, and then no more
GROWN_KIB = 4096
HEAVY = (  # what an executor has most to do with
    ("python", "for n in range(12000): print(n)\n"),
    ("python", "for _ in range(60): os.write(1, b'\\xff' * 65536)\n"),
    ("python", "for n in range(4): open(f'output/{n}', 'wb').write(bytes(1 << 20))\n"),
    ("bash", "for i in 1 2 3 4 5 6 7 8; do setsid sleep 60 & done; exit 3"),
)


def attack(target: Target) -> None:
    outputs = tuple(f"output/{n}" for n in range(4))
    for language, code in HEAVY:
        target.run(language, code, outputs=outputs, limits=target.limits(wall_seconds=1))


def test_nothing_of_any_job_is_left(target: Target) -> None:
    target.run("bash", "echo the last")
    assert target.before.left_between_jobs() == []


def test_the_server_s_memory_and_descriptors_stay_as_they_are(target: Target) -> None:
    me = os.getpid()
    attack(target)
    held = descriptors(me), threads(me)
    used = []
    for _ in range(ROUNDS):
        attack(target)
        gc.collect()
        used.append(resident_kib(me))
    middle = WARM + (ROUNDS - WARM) // 2
    early, late = used[WARM:middle], used[middle:]
    assert min(late) - max(early) < GROWN_KIB
    assert (descriptors(me), threads(me)) == held


def test_the_next_job_runs_as_the_first_did(target: Target) -> None:
    posture = target.harness.executor.posture
    report = target.run("python", "print('as ever')").report
    assert report.provenance.controls == posture.controls
    assert report.exit_code == 0


@pytest.fixture
def unconfined(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(choose_backend("off", ExecSettings(jobs_root=str(tmp_path))))
    harness.do(harness.executor.open())
    yield harness
    harness.close()


def test_an_executor_that_does_not_confine_is_given_no_attack(
    unconfined: Harness, target: Target
) -> None:
    with pytest.raises(NotIsolatingError):
        Target(unconfined, target.kind, target.before)


def test_an_executor_with_two_controls_off_is_given_no_attack(target: Target) -> None:
    with pytest.raises(NotIsolatingError):
        Target(target.harness, target.kind, target.before, frozenset({"seccomp", "rlimits"}))
