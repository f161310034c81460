"""The launcher's loop: start what the server asks for, reap what has ended, go when it is gone."""

from __future__ import annotations

import gc
import os
import select
from _socket import (
    AF_UNIX,
    CMSG_SPACE,
    MSG_CMSG_CLOEXEC,
    MSG_NOSIGNAL,
    SCM_RIGHTS,
    SOCK_SEQPACKET,
    SOCK_STREAM,
    SOL_SOCKET,
    socket,
)
from time import monotonic

from rookhold_exec.launcher import directory, orders, plain, supervisor
from rookhold_exec.launcher.descriptors import raise_descriptor
from rookhold_exec.launcher.family import end_orphans
from rookhold_exec.launcher.protocol import (
    FAILED,
    HELLO,
    KILL,
    MESSAGE_MAX,
    READY,
    REFUSED,
    START,
    VERSION,
    ProtocolError,
    decode,
    encode,
    send_frame,
)
from rookhold_exec.launcher.setup import OFF, Setup, detach
from rookhold_exec.launcher.signals import SIGKILL, pidfd_send_signal
from rookhold_exec.launcher.spawn import Job, start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FDS_MAX = 4
_RETRY_MS = 50  # a group stays busy for a moment after its last process
_END_SECONDS = 2.0


class Launcher:
    """The jobs that it has started, by the descriptor that says when a supervisor is gone."""

    def __init__(self, server: socket, setup: Setup) -> None:
        self._server = server
        self._setup = setup
        self._jobs: dict[int, Job] = {}
        self._busy: list[Job] = []
        self._poll = select.poll()
        self._poll.register(server.fileno(), select.POLLIN)

    def serve(self) -> None:
        """Return when the server is gone."""
        while True:
            for fd, _ in self._poll.poll(_RETRY_MS if self._busy else None):
                if fd == self._server.fileno():
                    if not self._receive():
                        return
                else:
                    self._reap(self._jobs.pop(fd))
            self._busy = [job for job in self._busy if not job.group.remove()]

    def _receive(self) -> bool:
        try:
            data, ancillary, _, _ = self._server.recvmsg(
                MESSAGE_MAX, CMSG_SPACE(4 * _FDS_MAX), MSG_CMSG_CLOEXEC
            )
        except ConnectionError:
            return False
        if not data:
            return False
        message = decode(data)
        if message["op"] == START:
            self._start(message, _descriptors(ancillary))
        elif message["op"] == KILL:
            for job in self._jobs.values():
                if job.name == message["job"]:
                    self._kill(job)
        else:
            raise ProtocolError("an operation that is not known")
        return True

    def _start(self, message: dict[str, Any], fds: list[int]) -> None:
        control = socket(AF_UNIX, SOCK_STREAM, 0, fds[0])
        job = None
        setup = self._setup
        try:
            orders.check(message, workers=setup.workers, directory=setup.directories)
            orders.check_streams(fds[1:])
            job = Job(setup, message, control, fds[1:])
            if self._setup.mode == OFF:
                start(job, 0, plain.supervise)
            elif setup.gvisor is not None:
                start(job, setup.flags, setup.gvisor.supervise)
            else:
                start(job, setup.flags, supervisor.supervise)
                self._make_groups(job)
        except (OSError, KeyError, orders.OrderError) as error:
            stage = "groups" if job is None and isinstance(error, OSError) else "clone"
            if isinstance(error, orders.OrderError):
                stage = "order"
            send_frame(control, {"op": FAILED, "stage": stage})
            if job is not None:
                job.let_go()
                self._busy.append(job)
        else:
            job.let_go()
            self._jobs[job.pidfd] = job
            self._poll.register(job.pidfd, select.POLLIN)
        finally:
            control.close()
            for fd in fds[1:]:
                os.close(fd)

    def _make_groups(self, job: Job) -> None:
        """Give a sandbox that starts its groups, or end it."""
        try:
            job.make_groups()
        except OSError:
            self._kill(job)
            send_frame(job.control, {"op": FAILED, "stage": "groups"})

    def _reap(self, job: Job) -> None:
        self._poll.unregister(job.pidfd)
        os.waitpid(job.pid, 0)
        os.close(job.pidfd)
        if self._setup.mode == OFF:
            # A supervisor that was killed has killed nobody: its job is this subreaper's now.
            end_orphans({other.pid for other in self._jobs.values()})
            directory.remove(job.directory)
        if not job.group.remove():
            self._busy.append(job)

    def _kill(self, job: Job) -> None:
        try:
            pidfd_send_signal(job.pidfd, SIGKILL)
        except ProcessLookupError:
            return

    def end(self) -> None:
        """End every job, and remove what was made for it."""
        os.close(self._setup.lifeline_held)
        until = monotonic() + _END_SECONDS
        while self._jobs and monotonic() < until:
            for fd, _ in self._poll.poll(_RETRY_MS):
                if fd in self._jobs:
                    self._reap(self._jobs.pop(fd))
                else:
                    self._poll.unregister(fd)
        for job in self._jobs.values():
            self._kill(job)
        for job in list(self._jobs.values()):
            self._reap(job)
        while self._busy and monotonic() < until + _END_SECONDS:
            self._busy = [job for job in self._busy if not job.group.remove()]
            select.poll().poll(_RETRY_MS / 10)
        if self._setup.groups is not None:
            self._setup.groups.close()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds: list[int] = []
    for level, kind, data in ancillary:
        if level == SOL_SOCKET and kind == SCM_RIGHTS:
            fds += [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 4)]
    return fds


def main() -> int:
    """Serve the one server at descriptor 3 until it is gone; the exit status."""
    gc.disable()
    detach()
    server = socket(AF_UNIX, SOCK_SEQPACKET, 0, 3)
    try:
        message = decode(server.recv(MESSAGE_MAX))
        if message["op"] != HELLO or message["version"] != VERSION:
            raise ProtocolError("another version of this protocol")
        low, server = server, socket(AF_UNIX, SOCK_SEQPACKET, 0, raise_descriptor(3))
        low.close()
        setup = Setup(message)
    except (OSError, ProtocolError, KeyError) as error:
        stage = "isolation" if isinstance(error, OSError) else "protocol"
        detail = {"op": REFUSED, "stage": stage, "errno": getattr(error, "errno", None) or 0}
        server.send(encode(detail), MSG_NOSIGNAL)
        return 1
    gc.freeze()
    launcher = Launcher(server, setup)
    try:
        server.send(encode({"op": READY, "version": VERSION}), MSG_NOSIGNAL)
        launcher.serve()
    finally:
        launcher.end()
    return 0
