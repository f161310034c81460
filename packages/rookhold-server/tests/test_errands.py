from __future__ import annotations

import asyncio  # noqa: TID251 - what is tested settles futures of its loop
import gc
import threading
from typing import TYPE_CHECKING

import anyio
import pytest

from rookhold_server.errands import Errands

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.anyio


def threads(name: str) -> int:
    return sum(thread.name.startswith(name) for thread in threading.enumerate())


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(10):
        while not condition():
            await anyio.sleep(0.01)


async def test_a_call_returns_what_it_returns_in_another_thread() -> None:
    errands = Errands("errands", 2)
    assert await errands.run(threading.get_ident) != threading.get_ident()
    assert await errands.run(lambda: 6 * 7) == 42


async def test_a_call_raises_what_it_raises_and_the_thread_goes_on() -> None:
    errands = Errands("errands", 1)
    with pytest.raises(ZeroDivisionError):
        await errands.run(lambda: 1 // 0)
    assert await errands.run(lambda: "still there") == "still there"


async def test_no_more_threads_than_asked_for_and_none_before_they_are_needed() -> None:
    errands = Errands("counted", 2)
    assert threads("counted") == 0
    for _ in range(3):
        await errands.run(int)
    assert threads("counted") == 1
    gate = threading.Event()
    both = threading.Barrier(3)

    def call() -> None:
        both.wait(10)
        gate.wait(10)

    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(errands.run, call)
        await asyncio.get_running_loop().run_in_executor(None, both.wait, 10)
        late = asyncio.ensure_future(errands.run(int))
        await anyio.sleep(0.05)
        assert not late.done()
        assert threads("counted") == 2
        gate.set()
    assert await late == 0


async def test_a_cancelled_call_is_run_to_its_end_and_disturbs_no_other() -> None:
    errands = Errands("errands", 1)
    gate, done = threading.Event(), threading.Event()

    def call() -> None:
        gate.wait(10)
        done.set()

    with anyio.move_on_after(0.05) as scope:
        await errands.run(call)
    assert scope.cancelled_caught
    gate.set()
    assert await errands.run(done.is_set)


async def test_the_threads_end_with_the_last_reference() -> None:
    errands = Errands("dismissed", 2)
    await errands.run(int)
    del errands
    gc.collect()
    await until(lambda: threads("dismissed") == 0)


def test_a_call_that_outlives_its_loop_is_nobodys_trouble() -> None:
    errands = Errands("errands", 1)
    gate, ended = threading.Event(), threading.Event()

    def call() -> None:
        gate.wait(10)
        ended.set()

    async def leave() -> None:
        task = asyncio.ensure_future(errands.run(call))
        await asyncio.sleep(0)
        task.cancel()

    asyncio.run(leave())
    gate.set()
    assert ended.wait(10)
    assert asyncio.run(errands.run(lambda: "served")) == "served"
