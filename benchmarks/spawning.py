"""A plain child from the event loop by `posix_spawn`: two pipes and a descriptor for its end.

It is what a launcher of ours is compared with, so it does as little as can be done: nothing is
counted or hashed, and the child is over once both pipes are at their end and it was reaped.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - drives descriptors on the loop
import os

from benchmarks.programs import ENVIRONMENT

_CHUNK = 65536


class Child:
    """One child; `result` is done when nothing of it is left."""

    def __init__(self, argv: list[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self.result: asyncio.Future[tuple[int, bytes]] = self._loop.create_future()
        self._output: dict[int, list[bytes]] = {}
        self._status = 0
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        try:
            self._pid = os.posix_spawn(
                argv[0],
                argv,
                ENVIRONMENT,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, out_write, 1),
                    (os.POSIX_SPAWN_DUP2, err_write, 2),
                ],
            )
        finally:
            os.close(out_write)
            os.close(err_write)
        self._stdout = out_read
        self._pidfd = os.pidfd_open(self._pid)
        self._open = {out_read, err_read, self._pidfd}
        for fd in (out_read, err_read):
            self._output[fd] = []
            self._loop.add_reader(fd, self._read, fd)
        self._loop.add_reader(self._pidfd, self._ended)

    def _read(self, fd: int) -> None:
        data = os.read(fd, _CHUNK)
        if data:
            self._output[fd].append(data)
        else:
            self._close(fd)

    def _ended(self) -> None:
        _, status = os.waitpid(self._pid, 0)
        self._status = os.waitstatus_to_exitcode(status)
        self._close(self._pidfd)

    def _close(self, fd: int) -> None:
        self._loop.remove_reader(fd)
        os.close(fd)
        self._open.discard(fd)
        if not self._open:
            self.result.set_result((self._status, b"".join(self._output[self._stdout])))


async def run(argv: list[str]) -> bytes:
    """Run `argv` to its end and return what it printed; it must succeed."""
    status, output = await Child(argv).result
    if status != 0:
        raise RuntimeError(f"{argv[0]} ended with {status}")
    return output
