"""What a line of the log bears: the ids of what is being done, wherever it is written."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

import anyio
import pytest

from rookhold_server import logs
from rookhold_server.errands import Errands

if TYPE_CHECKING:
    from collections.abc import Iterator

log = logging.getLogger("rookhold_server.test_logs")


class Lines(logging.Handler):
    """Keeps lines as they would be written, in the place where they are written."""

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(params=[logs.JsonLines, logs.CompactLines])
def written(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    handler = Lines(request.param())
    log.addHandler(handler)
    yield handler.lines
    log.removeHandler(handler)


def test_lines_bear_what_they_are_about_and_no_longer(written: list[str]) -> None:
    with logs.about(request_id="r1"):
        log.warning("one")
        with logs.about(job_id="j1"):
            log.warning("two", extra={"request_id": "its own"})
        log.warning("three")
        logs.add(job_id="j2")
        log.warning("four")
    log.warning("five")
    logs.add(job_id="j3")
    log.warning("six")
    found = [(("r1" in line), "j1" in line, "j2" in line, "own" in line) for line in written]
    assert found == [
        (True, False, False, False),
        (False, True, False, True),
        (True, False, False, False),
        (True, False, True, False),
        (False, False, False, False),
        (False, False, False, False),
    ]
    assert not any("j3" in line for line in written)


@pytest.mark.anyio
async def test_tasks_and_threads_that_are_begun_for_it_take_it_along(written: list[str]) -> None:
    errands = Errands("test-logs", 1)
    beyond = anyio.Event()

    async def task() -> None:
        log.warning("task")
        await errands.run(lambda: log.warning("errand"))
        await anyio.to_thread.run_sync(lambda: log.warning("thread"))

    async def earlier() -> None:
        await beyond.wait()
        log.warning("earlier")

    async with anyio.create_task_group() as outside:
        outside.start_soon(earlier)
        with logs.about(job_id="j1"):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(task)
            beyond.set()
    assert sum("j1" in line for line in written) == 3
    assert "j1" not in written[-1]


def test_a_line_of_json_is_one_object_whatever_it_holds() -> None:
    handler = Lines(logs.JsonLines())
    log.addHandler(handler)
    try:
        with logs.about(request_id="r1"):
            log.error("two\nlines of %s", "a job", extra={"code": "x", "count": 2})
    finally:
        log.removeHandler(handler)
    line = json.loads(handler.lines[0])
    assert "\n" not in handler.lines[0]
    line.pop("ts_ms")
    assert line == {
        "level": "error",
        "logger": log.name,
        "message": "two\nlines of a job",
        "request_id": "r1",
        "code": "x",
        "count": 2,
    }
