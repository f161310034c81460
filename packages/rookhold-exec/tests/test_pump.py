import asyncio
import os

import pytest

from rookhold_exec.capture import Captured
from rookhold_exec.pump import Pump


class Sink:
    def __init__(self, room: int) -> None:
        self.room = room
        self.taken: list[Captured] = []

    def __call__(self, records: list[Captured]) -> bool:
        self.taken += records
        return len(self.taken) < self.room


def fill(pipe: int) -> int:
    written = 0
    while True:
        try:
            written += os.write(pipe, b"x" * 1023 + b"\n")
        except BlockingIOError:
            return written


async def until(condition: object) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


def test_a_pipe_is_not_read_while_there_is_no_room() -> None:
    async def scenario() -> None:
        read, write = os.pipe()
        os.set_blocking(write, False)
        sink = Sink(room=1)
        pump = Pump(read, "stdout", sink)
        os.write(write, b"first\n")
        await until(lambda: pump.paused)
        written = fill(write)
        for _ in range(20):
            await asyncio.sleep(0)
        with pytest.raises(BlockingIOError):
            os.write(write, b"x")
        assert len(sink.taken) == 1
        sink.room = 10_000
        pump.resume()
        await until(lambda: pump.capture.bytes_seen == written + 6)
        os.close(write)
        await until(lambda: pump.closed)
        assert len(sink.taken) == 1 + written // 1024

    asyncio.run(scenario())


@pytest.mark.parametrize("room", [1, 10_000])
def test_closing_takes_what_the_pipe_holds_although_nobody_came_to_read_it(room: int) -> None:
    async def scenario() -> None:
        read, write = os.pipe()
        os.set_blocking(write, False)
        sink = Sink(room)
        pump = Pump(read, "stdout", sink)
        written = fill(write)  # and the other end stays open
        pump.close()
        assert pump.capture.bytes_seen == written
        assert len(sink.taken) == written // 1024
        with pytest.raises(BrokenPipeError):
            os.write(write, b"x")
        os.close(write)

    asyncio.run(scenario())


def test_closing_gives_out_what_was_read_and_is_idempotent() -> None:
    async def scenario() -> None:
        read, write = os.pipe()
        sink = Sink(room=10)
        pump = Pump(read, "stderr", sink)
        os.write(write, b"no newline")
        await until(lambda: pump.capture.bytes_seen == 10)
        pump.close()
        pump.close()
        pump.resume()
        assert [record.line for record in sink.taken] == ["no newline"]
        os.close(write)

    asyncio.run(scenario())
