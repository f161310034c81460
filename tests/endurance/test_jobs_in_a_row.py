"""Jobs in a row, of every kind of end, leave nothing: not on the host, nor in the two processes."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from faults.leftovers import resident_kib

from rookhold_exec.errors import SandboxStartError
from rookhold_types.checks import InputFile
from rookhold_types.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from endurance.executor import Executor
    from isolating import Isolating

WARM, JOBS = 12, 60
SOAK_WARM, SOAK_JOBS = 500, 2000
LOOK_EVERY = 100  # jobs between two looks at what is there
# What floods come through here leaves the allocator of this process with more or less at hand; the
# launcher does no such work, and is exact.
OURS_KIB, LAUNCHER_KIB = 16 * 1024, 1024


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of job, and how it ends; `cancel_on` is what it prints before it is cancelled."""

    language: str
    code: str
    ends: str = "succeeded"
    weight: int = 1
    limits: dict[str, int] = field(default_factory=dict)
    more: dict[str, Any] = field(default_factory=dict)
    cancel_on: bytes | None = None


KINDS = {
    "quick": Kind(language="bash", code="echo quick", weight=40),
    "python": Kind(language="python", code="print(6 * 7)", weight=10),
    "exit": Kind(language="bash", code="exit 3", ends="failed", weight=6),
    "signal": Kind(language="bash", code="kill -SEGV $$; sleep 9", ends="failed", weight=4),
    "files": Kind(
        language="bash",
        code="cat input/given - > output/kept; head -c 300000 /dev/zero > output/zeros",
        more={
            "stdin": b"from stdin",
            "files": (InputFile(path="input/given", content=b"given" * 2000),),
            "outputs": ("output/kept", "output/zeros"),
        },
        weight=8,
    ),
    "missing": Kind(language="bash", code="true", more={"outputs": ("output/absent",)}, weight=4),
    "flood": Kind(language="bash", code="yes | head -c 3000000", weight=3),
    "daemon": Kind(language="bash", code="(setsid sleep 60 &); (sleep 61 &); echo left", weight=6),
    "forks": Kind(
        language="bash",
        code="for n in $(seq 20); do (:) & done; wait; echo forked",
        weight=4,
    ),
    "cancelled": Kind(
        language="bash", code="echo up; sleep 60", ends="cancelled", cancel_on=b"up", weight=8
    ),
    "memory": Kind(
        language="python",
        code="b = bytearray(300 << 20); b[::4096] = b'x' * len(b[::4096])",
        ends="oom_killed",
        limits={"mem_mb": 64},
        weight=2,
    ),
    "wall": Kind(
        language="bash",
        code="trap '' TERM; while :; do sleep 9; done",
        ends="timed_out",
        limits={"wall_seconds": 1},
        weight=1,
    ),
    "refused": Kind(language="bash", code="true", ends="refused", more={"slot": 99}, weight=2),
}


def offered(executor: Executor) -> dict[str, Kind]:
    """Leave out what this host cannot end as it says: without a group nothing is out of memory."""
    limits_memory = executor.harness.executor.posture.limit_enforcement.mem
    return {name: kind for name, kind in KINDS.items() if limits_memory or name != "memory"}


def run(executor: Executor, backend: Isolating, kind: Kind) -> str:
    """Run one job; return how it ended."""
    harness = executor.harness
    limits = Limits(**backend.limits(**({"wall_seconds": 60, "mem_mb": 256} | kind.limits)))
    plan = harness.plan(kind.language, kind.code, limits=limits, **kind.more)
    try:
        result = harness.do(harness.finish(plan, kill_on=kind.cancel_on))
    except SandboxStartError:
        return "refused"
    return str(result.report.status)


def run_many(
    executor: Executor, backend: Isolating, dice: random.Random, count: int
) -> tuple[Counter[str], list[int]]:
    """Return how they ended, and this process's memory at every look between them."""
    kinds = offered(executor)
    weights = [kind.weight for kind in kinds.values()]
    ends: Counter[str] = Counter()
    memory: list[int] = []
    # Each kind is there however few they are.
    names = [*kinds, *dice.choices(list(kinds), weights, k=max(count - len(kinds), 0))][:count]
    dice.shuffle(names)
    for number, name in enumerate(names, start=1):
        ended = run(executor, backend, kinds[name])
        assert ended == kinds[name].ends, f"job {number} ({name}) ended {ended}"
        ends[ended] += 1
        if number % LOOK_EVERY == 0:
            assert executor.before.left_between_jobs() == []
            memory.append(resident_kib(os.getpid()))
    return ends, memory


def run_and_compare(
    executor: Executor, backend: Isolating, warm: int, count: int, say: Callable[[str], None]
) -> None:
    dice = random.Random(f"{backend.name} {count}")
    run_many(executor, backend, dice, warm)
    ours, launchers = executor.at_rest()
    launcher = executor.launcher
    began = time.monotonic()
    ends, memory = run_many(executor, backend, dice, count)
    seconds = time.monotonic() - began
    ours_after, launchers_after = executor.at_rest()
    assert executor.launcher == launcher, "it was started again"
    assert launchers_after == launchers
    assert ours_after == ours
    say(f"memory of this process after each {LOOK_EVERY} jobs, KiB: {memory}")
    grown = ours_after.resident_kib - ours.resident_kib
    launcher_grown = launchers_after.resident_kib - launchers.resident_kib
    told = ", ".join(f"{name} {number}" for name, number in sorted(ends.items()))
    say(
        f"{backend.name}: {count} jobs in {seconds:.0f} s ({told}); descriptors"
        f" {len(ours.descriptors)} and {len(launchers.descriptors)}, mounts"
        f" {len(launchers.mounts)}, the same after; memory {ours.resident_kib} {grown:+} KiB,"
        f" launcher {launchers.resident_kib} {launcher_grown:+} KiB"
    )
    assert grown < OURS_KIB
    assert launcher_grown < LAUNCHER_KIB


def test_sixty_jobs_in_a_row_leave_nothing(
    executor: Executor, backend: Isolating, say: Callable[[str], None]
) -> None:
    run_and_compare(executor, backend, WARM, JOBS, say)


@pytest.mark.soak
def test_two_thousand_jobs_in_a_row_leave_nothing(
    executor: Executor, backend: Isolating, say: Callable[[str], None]
) -> None:
    run_and_compare(executor, backend, SOAK_WARM, SOAK_JOBS, say)
