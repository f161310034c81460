"""Operations of several threads at once: some order of them explains every answer and the end."""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rookhold_store import (
    Append,
    CancelQueued,
    PersistAttestation,
    StorageLimits,
    Store,
    StoreError,
)
from rookhold_store.operations import Operation
from rookhold_store.testing import anything_binds
from rookhold_store.testing.model import MIB, Model, told
from rookhold_store.testing.traffic import Traffic

THREADS, EACH, SHARED = 3, 4, 3
# Room for the jobs that are there from the beginning and for one or two more.
LIMITS = StorageLimits(global_bytes=180 * MIB, tenant_bytes=130 * MIB)


class Call(NamedTuple):
    op: Operation[Any]
    answer: Any
    began: int
    ended: int


def act(store: Store, ops: list[Operation[Any]], go: threading.Barrier, calls: list[Call]) -> None:
    go.wait(60)
    for op in ops:
        began = time.monotonic_ns()
        try:
            answer: Any = store.call(op)
        except StoreError as error:
            answer = error
        calls.append(Call(op, answer, began, time.monotonic_ns()))


def explained(model: Model, threads: list[list[Call]], store: Store) -> bool:
    """Whether some order gives these answers and this end.

    A thread's calls keep their order; one that had ended before another began comes before it.
    """
    if not any(threads):
        return model.differences(store) == []
    first_end = min(calls[0].ended for calls in threads if calls)
    for number, calls in enumerate(threads):
        if not calls or calls[0].began > first_end:
            continue
        then = model.copy()
        if then.apply(calls[0].op, calls[0].answer) == told(calls[0].answer):
            rest = [*threads[:number], calls[1:], *threads[number + 1 :]]
            if explained(then, rest, store):
                return True
    return False


def operations(traffic: Traffic, jobs: list[str]) -> Iterator[Operation[Any]]:
    while True:
        kind = traffic.kind()
        if kind is not PersistAttestation:  # it would have to know a receipt
            yield traffic.operation(jobs, kind)


def run(path: Path, seed: int) -> None:
    dice = random.Random(seed)
    limits = dice.choice((None, LIMITS))
    traffic, model = Traffic(dice), Model(limits)
    with Store.open(path, binding=anything_binds, limits=limits) as store:
        made = operations(traffic, [])
        while len(model.jobs) < SHARED:
            op = next(made)
            try:
                answer: Any = store.call(op)
            except StoreError as error:
                answer = error
            assert told(answer) == model.apply(op, answer)
        made = operations(traffic, sorted(model.jobs))
        plans = [[next(made) for _ in range(EACH)] for _ in range(THREADS)]
        calls: list[list[Call]] = [[] for _ in plans]
        go = threading.Barrier(THREADS)
        threads = [
            threading.Thread(target=act, args=(store, plan, go, mine))
            for plan, mine in zip(plans, calls, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [len(mine) for mine in calls] == [EACH] * THREADS
        assert explained(model, calls, store), (seed, calls)


@pytest.mark.parametrize("seed", range(12))
def test_some_order_explains_what_several_threads_were_answered(path: Path, seed: int) -> None:
    run(path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(20))
def test_some_order_explains_what_several_threads_were_answered_very_often(
    path: Path, hundred: int
) -> None:
    for seed in range(100):
        run(path.with_name(f"{seed}.db"), 1000 + hundred * 100 + seed)


def test_answers_that_no_order_explains_are_not_explained(path: Path) -> None:
    with Store.open(path, binding=anything_binds) as store:
        traffic, model = Traffic(random.Random(1)), Model()
        made = next(op for op in operations(traffic, []) if hasattr(op, "fingerprint"))
        store.call(made)
        model.apply(made)
        job_id = next(iter(model.jobs))
        events = [("stdout", {"line": "a", "eol": True})]
        append = Append(job_id=job_id, events=events, now_ms=1)
        tenant = model.jobs[job_id].accept.tenant
        cancel = CancelQueued(tenant=tenant, job_id=job_id, now_ms=1)
        appended = store.call(append)
        cancelled = store.call(cancel)
        good = [Call(append, appended, 1, 4)], [Call(cancel, cancelled, 2, 3)]
        assert explained(model.copy(), list(good), store)
        late = [Call(append, appended, 3, 4)], [Call(cancel, cancelled, 1, 2)]
        assert not explained(model.copy(), list(late), store), "after its end nothing is added"
        twice = [Call(cancel, cancelled, 1, 4)], [Call(cancel, cancelled, 1, 4)]
        assert not explained(model.copy(), list(twice), store)
