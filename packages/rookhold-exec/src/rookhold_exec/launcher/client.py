"""The server's side of the launcher: starting it, watching it, restarting it when it dies.

Who starts it is the spawner's matter: this process, or a root supervisor for it.
"""

from __future__ import annotations

import array
import asyncio  # noqa: TID251 - watches a socket and a process descriptor on the loop
import logging
import os
import resource
import socket
from typing import TYPE_CHECKING, Any

from rookhold_exec.errors import ExecutorUnavailableError, LauncherLostError
from rookhold_exec.launcher.protocol import (
    HELLO,
    KILL,
    MESSAGE_MAX,
    READY,
    START,
    VERSION,
    ProtocolError,
    decode,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rookhold_exec.launcher.spawner import Spawner

_log = logging.getLogger(__name__)

HELLO_SECONDS = 10.0
_RETURN_SECONDS = 5.0  # how long a start waits for a launcher that is being restarted
_BACKOFF = (0.0, 0.05, 0.2, 1.0)
_OPEN_FILES = 4096  # more than the jobs of an account can keep on their way in sockets


def hello(settings: dict[str, Any]) -> bytes:
    """Return a launcher's first message."""
    return encode({"op": HELLO, "version": VERSION, **settings})


def make_room() -> None:
    """Let this process pass descriptors on, whatever its own jobs have on their way.

    Where jobs have the server's account the kernel counts theirs too, and compares the sum with the
    limit of whoever sends; theirs is 1024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class LauncherClient:
    """One launcher at a time, for one executor."""

    def __init__(self, spawner: Spawner, settings: Callable[[], dict[str, Any]]) -> None:
        """`settings` is asked at every start that is ours to greet."""
        self._spawner = spawner
        self._settings = settings
        self._socket: socket.socket | None = None
        self._pidfd = -1
        self._up = asyncio.Event()
        self._gone = asyncio.Event()
        self._closing = False
        self._served = False  # whether this launcher ever came up; only then is it restarted
        self._restarting: asyncio.Task[None] | None = None
        self.pid = -1
        self.restarts = 0

    async def open(self) -> None:
        """Start the launcher and wait until it can start jobs."""
        make_room()
        try:
            self.pid, self._pidfd, ours, greeted = await self._spawner.start()
        except (OSError, TimeoutError, ProtocolError) as error:
            raise ExecutorUnavailableError("the launcher could not be started") from error
        self._gone.clear()
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pidfd, self._exited)
        ours.setblocking(False)
        self._socket = ours
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                if not greeted:
                    await loop.sock_sendall(ours, hello(self._settings()))
                answer = decode(await loop.sock_recv(ours, MESSAGE_MAX) or b"n")
        except (OSError, TimeoutError, ProtocolError) as error:
            await self._abandon()
            raise ExecutorUnavailableError("the launcher did not come up") from error
        except BaseException:
            await self._abandon()
            raise
        if answer is None or answer.get("op") != READY or answer.get("version") != VERSION:
            await self._abandon()
            stage = str((answer or {}).get("stage", "start"))
            number = int((answer or {}).get("errno", 0))
            raise ExecutorUnavailableError(
                f"the launcher cannot work on this host ({stage}: {os.strerror(number)})",
                stage=stage,
                errno=number,
            )
        if self._gone.is_set():  # it answered and died, and both were heard of at once
            await self._abandon()
            raise ExecutorUnavailableError("the launcher did not come up")
        loop.add_reader(ours.fileno(), self._told)
        self._served = True
        self._up.set()

    async def start(self, message: dict[str, Any], fds: Sequence[int]) -> None:
        """Hand one job over, or raise LauncherLostError; the caller closes `fds` either way."""
        data = encode({"op": START, **message})
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        until = asyncio.get_running_loop().time() + _RETURN_SECONDS
        while not self._closing:
            launcher = await self._connected(until)
            try:
                launcher.sendmsg([data], rights)
            except BlockingIOError:
                await asyncio.sleep(0.001)
            except ConnectionError:
                self._disconnect()  # it has died and took nothing: the next one may have this job
            except OSError as error:
                raise LauncherLostError("the launcher could not be told") from error
            else:
                return
        raise LauncherLostError("the launcher is going")

    async def _connected(self, until: float) -> socket.socket:
        """Return the socket to the launcher that is there, or will be in time."""
        if self._socket is None or not self._up.is_set():
            try:
                async with asyncio.timeout_at(until):
                    await self._up.wait()
            except TimeoutError as error:
                raise LauncherLostError("the launcher is not there") from error
        if self._socket is None:
            raise LauncherLostError("the launcher is gone")
        return self._socket

    def kill(self, job: str) -> None:
        """Have the job's supervisor killed from outside; for one that has not ended by itself."""
        if self._socket is not None:
            try:
                self._socket.send(encode({"op": KILL, "job": job}))
            except OSError:
                return  # the job dies with its launcher

    def kill_itself(self, pid: int) -> None:
        """Kill the launcher `pid`, which no longer does what it is asked; it is then restarted.

        By its pid, so that whoever still waits for a launcher that has gone spares its successor.
        """
        if self._pidfd >= 0 and pid == self.pid:
            self._spawner.kill(pid, self._pidfd)

    def _told(self) -> None:
        launcher = self._socket
        if launcher is None:
            return
        try:
            data = launcher.recv(MESSAGE_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._disconnect()

    def _disconnect(self) -> None:
        self._up.clear()
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _exited(self) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        self._spawner.reap(self.pid)
        served, self._served = self._served, False
        self._gone.set()
        if not served:  # `open` still listens to its socket, and hears of it there
            return
        self._disconnect()
        if not self._closing:
            _log.error("the launcher died; restarting it", extra={"code": "launcher_lost"})
            self._restarting = loop.create_task(self._restart())

    async def _restart(self) -> None:
        attempt = 0
        while not self._closing:
            await asyncio.sleep(_BACKOFF[min(attempt, len(_BACKOFF) - 1)])
            attempt += 1
            try:
                await self.open()
            except Exception:  # noqa: BLE001 - whatever it was: without a launcher no job runs
                _log.exception("the launcher did not restart", extra={"code": "launcher_lost"})
            else:
                self.restarts += 1
                return

    async def _abandon(self) -> None:
        self._disconnect()
        await self._end()

    async def _end(self) -> None:
        """Wait until the launcher has gone by itself, its socket closed; else kill it."""
        if self._pidfd < 0:
            return
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                await self._gone.wait()
        except TimeoutError:
            self.kill_itself(self.pid)
            await self._gone.wait()

    async def close(self) -> None:
        """End the launcher, and with it every job that it still holds."""
        self._closing = True
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.gather(self._restarting, return_exceptions=True)
        self._disconnect()
        await self._end()
