"""How the server gets a launcher: it starts one, or a root supervisor starts it for the server."""

from __future__ import annotations

import asyncio  # noqa: TID251 - waits for the supervisor's answers on the loop
import contextlib
import os
import signal
import socket
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rookhold_exec.launcher.protocol import MESSAGE_MAX, ProtocolError, decode, encode
from rookhold_exec.launcher.spawning import (
    ENVIRONMENT,
    FDS,
    KILL,
    LAUNCH,
    LAUNCHED,
    PROGRAM,
    SOCKET_FD,
    descriptors,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

ANSWER_SECONDS = 10.0


class Launched(NamedTuple):
    """A launcher that was started; both descriptors are the receiver's to close."""

    pid: int
    pidfd: int
    socket: socket.socket
    greeted: bool  # whoever started it has sent its HELLO, and nobody can send another


class Spawner(Protocol):
    """Starts launchers, one at a time."""

    async def start(self) -> Launched:
        """Raises OSError."""

    def kill(self, pid: int, pidfd: int) -> None:
        """Kill the launcher `pid`; nothing if it has gone."""

    def reap(self, pid: int) -> None:
        """Collect what is left of the launcher `pid`, which has ended."""


class LocalSpawner:
    """Starts it as a child of this process.

    Always by exec, with an explicit environment and one descriptor, so that nothing of the server's
    memory, secrets or files is ever in it.
    """

    def __init__(self, interpreter: Sequence[str]) -> None:
        self._interpreter = tuple(interpreter)

    async def start(self) -> Launched:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                pid = self._spawn(theirs.fileno())
            except OSError:
                ours.close()
                raise
        return Launched(pid, os.pidfd_open(pid), ours, greeted=False)

    def _spawn(self, fd: int) -> int:
        null = os.devnull
        return os.posix_spawn(
            self._interpreter[0],
            [*self._interpreter, PROGRAM],
            ENVIRONMENT,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, fd, SOCKET_FD),
                (os.POSIX_SPAWN_OPEN, 0, null, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, null, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, null, os.O_WRONLY, 0),
            ],
            setsigmask=[],
            # Ignored ones are inherited by exec: the launcher could not wait for its children, and
            # jobs would meet signals that do nothing.
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )

    def kill(self, pid: int, pidfd: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    def reap(self, pid: int) -> None:
        with contextlib.suppress(ChildProcessError):  # somebody else here may reap every child
            os.waitpid(pid, 0)


class RemoteSpawner:
    """Has a root supervisor start it, over the socket that the supervisor gave this process.

    The supervisor alone decides what a launcher is and what it is told first. To be used from one
    loop.
    """

    def __init__(self, supervisor: socket.socket) -> None:
        supervisor.setblocking(False)
        self._supervisor = supervisor
        self._answer: asyncio.Future[Launched] | None = None
        self._watched = False
        self._gone = asyncio.Event()

    async def gone(self) -> None:
        """Return when the supervisor has ended, or this was closed."""
        self._watch()
        await self._gone.wait()

    def _watch(self) -> None:
        if not (self._watched or self._gone.is_set()):
            self._watched = True
            asyncio.get_running_loop().add_reader(self._supervisor.fileno(), self._told)

    async def start(self) -> Launched:
        if self._gone.is_set():
            raise ConnectionResetError("the supervisor is gone")
        self._watch()
        self._answer = asyncio.get_running_loop().create_future()
        try:
            self._supervisor.send(encode({"op": LAUNCH}))
            async with asyncio.timeout(ANSWER_SECONDS):
                return await self._answer
        finally:
            self._answer = None

    def kill(self, pid: int, pidfd: int) -> None:
        with contextlib.suppress(OSError):  # then the supervisor has gone, and the launcher goes
            self._supervisor.send(encode({"op": KILL, "pid": pid}))

    def reap(self, pid: int) -> None:
        """The supervisor's child, not ours."""

    def _told(self) -> None:
        try:
            data, ancillary, _, _ = self._supervisor.recvmsg(
                MESSAGE_MAX, socket.CMSG_SPACE(4 * FDS), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            self._lost()
            return
        fds = descriptors(ancillary)
        answer, self._answer = self._answer, None
        try:
            launched = _launched(decode(data), fds)
        except (ProtocolError, OSError) as error:
            if answer is not None and not answer.done():
                answer.set_exception(error)
            return
        if answer is not None and not answer.done():
            answer.set_result(launched)
        else:  # nobody waits for it any more: without its socket it ends by itself
            os.close(launched.pidfd)
            launched.socket.close()

    def _lost(self) -> None:
        self.close()
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(ConnectionResetError("the supervisor is gone"))

    def close(self) -> None:
        """Stop listening; the supervisor gives nothing more to this server."""
        if not self._gone.is_set():
            self._gone.set()
            if self._watched:
                asyncio.get_running_loop().remove_reader(self._supervisor.fileno())
            self._supervisor.close()


def _launched(message: Any, fds: list[int]) -> Launched:
    try:
        if message["op"] == LAUNCHED and len(fds) == FDS:
            return Launched(int(message["pid"]), fds[1], socket.socket(fileno=fds[0]), greeted=True)
        number = int(message["errno"])
    except (KeyError, TypeError, ValueError) as error:
        for fd in fds:
            os.close(fd)
        raise ProtocolError("not an answer") from error
    for fd in fds:
        os.close(fd)
    raise OSError(number, os.strerror(number))
