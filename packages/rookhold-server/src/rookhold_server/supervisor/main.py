"""The root process itself: starts the survey, then the server, then launchers for as long as that.

Standard library only, beside the few modules that a launcher is made of: what is not loaded here
cannot be used against the host.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from rookhold_exec.launcher.protocol import MESSAGE_MAX, ProtocolError, decode, encode
from rookhold_exec.launcher.spawning import (
    ENVIRONMENT,
    FDS,
    KILL,
    LAUNCH,
    LAUNCHED,
    OPTIONS,
    PROGRAM,
    REFUSED,
    SOCKET_FD,
    descriptors,
)
from rookhold_server.supervisor import DESCRIPTOR
from rookhold_server.supervisor.children import Identity, begin

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

_STOP: Final = (signal.SIGTERM, signal.SIGINT)
_FORWARDED: Final = (*_STOP, signal.SIGHUP)
_INHERITED: Final = ("ROOKHOLD_READY_FD", "ROOKHOLD_LIFELINE_FD")  # the server's, not ours
_SURVEY_SECONDS: Final = 120.0  # a root file system is read from end to end
_END_SECONDS: Final = 15.0  # for a launcher whose server has gone to end its jobs
_EBUSY, _ENOTSUP = 16, 95
_PYTHON: Final = (sys.executable, "-P")  # nothing is loaded from where we happen to be started
SERVER: Final = (*_PYTHON, "-m", "rookhold_server")
SURVEY: Final = (*_PYTHON, "-m", "rookhold_server.supervisor.survey")


def main(environ: Mapping[str, str]) -> int:
    """Run a gateway to its end; the exit status is the server's."""
    inherited = _inherited(environ)  # before anything else is open
    signals = Signals()
    try:
        plan = _survey(environ, signals)
        if isinstance(plan, int):
            return plan
        grant, listener, settings = plan
        return Supervisor(environ, settings, signals).run(grant, listener, inherited)
    finally:
        signals.ignore()


def _inherited(environ: Mapping[str, str]) -> list[int]:
    """Return the descriptors that a parent hands to the server; what is none it refuses itself."""
    given = {environ.get(name, "") for name in _INHERITED}  # one descriptor may be both
    numbers = {int(text) for text in given if text.isascii() and text.isdigit() and len(text) < 20}
    return sorted(fd for fd in numbers if fd > 2 and _is_open(fd))


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except (OSError, OverflowError):
        return False
    return True


class Signals:
    """The signals to this process, as a descriptor and a list."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self.readable, self._told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._told, warn_on_full_buffer=False)
        for number in _FORWARDED:
            # Under nohup a terminal that goes away must not reach the server by way of us.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._note)
        # Whoever started us may have blocked them for itself; exec hands that on.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.seen.append(number)

    def ignore(self) -> None:
        """Let none of them change the exit status any more; a Python handler ends before we do."""
        for number in _FORWARDED:
            signal.signal(number, signal.SIG_IGN)

    def take(self) -> list[int]:
        """Return those that have come since the last call."""
        try:
            while os.read(self.readable, 64):
                pass
        except BlockingIOError:
            pass
        seen, self.seen = self.seen, []
        return seen


def _survey(
    environ: Mapping[str, str], signals: Signals
) -> int | tuple[bytes, int, dict[str, Any]]:
    """Return what the short root process has found, or the exit status where it refused."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        pid = begin(SURVEY, environ, at={SOCKET_FD: theirs.fileno()})
        theirs.close()
        try:
            return _received(ours, signals)
        finally:
            os.kill(pid, signal.SIGTERM)  # it has said all it has to say, or is not wanted any more
            os.waitpid(pid, 0)


def _received(survey: socket.socket, signals: Signals) -> int | tuple[bytes, int, dict[str, Any]]:
    waiting = select.poll()
    waiting.register(survey.fileno(), select.POLLIN)
    waiting.register(signals.readable, select.POLLIN)
    messages: list[bytes] = []
    fds: list[int] = []
    until = monotonic() + _SURVEY_SECONDS
    while len(messages) < 2:
        if not waiting.poll(max(0.0, until - monotonic()) * 1000) or signals.take():
            return 1
        data, ancillary, _, _ = survey.recvmsg(
            MESSAGE_MAX, socket.CMSG_SPACE(4 * FDS), socket.MSG_CMSG_CLOEXEC
        )
        if not data:  # it has refused, and said why
            return 1
        messages.append(data)
        fds += descriptors(ancillary)
    return messages[0], fds[0], decode(messages[1])


class Supervisor:
    """The two processes that it has started, of which each may end at any time."""

    def __init__(
        self, environ: Mapping[str, str], settings: Mapping[str, Any], signals: Signals
    ) -> None:
        self._identity = Identity(settings["uid"], settings["gid"])
        self._environ = {**environ, **settings["environment"]}
        self._hello: bytes | None = settings["launcher"]
        self._as_root = bool(settings["as_root"])
        self._signals = signals
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server = self._server_pidfd = -1
        self._launcher = self._launcher_pidfd = -1
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._waiting = select.poll()

    def run(self, grant: bytes, listener: int, inherited: list[int]) -> int:
        """`inherited` are descriptors for the server; they and the listener are its from now on."""
        self._start_server(grant, listener, inherited)
        self._waiting.register(self._signals.readable, select.POLLIN)
        self._waiting.register(self._server_pidfd, select.POLLIN)
        self._waiting.register(self._ours.fileno(), select.POLLIN)
        while True:
            for fd, _ in self._waiting.poll():
                if fd == self._signals.readable:
                    self._forward()
                elif fd == self._launcher_pidfd:
                    self._reap_launcher()
                elif fd == self._server_pidfd:
                    return self._end()
                else:
                    self._hear()

    def _start_server(self, grant: bytes, listener: int, inherited: list[int]) -> None:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, listener.to_bytes(4, "little"))
        self._ours.sendmsg([grant], [rights])
        os.close(listener)
        theirs = self._theirs.fileno()
        self._server = begin(
            SERVER,
            {**self._environ, DESCRIPTOR: str(theirs)},
            keep=[theirs, *inherited],
            identity=self._identity,
        )
        self._server_pidfd = os.pidfd_open(self._server)
        self._theirs.close()
        for fd in inherited:
            os.close(fd)

    def _forward(self) -> None:
        for number in self._signals.take():
            wanted = signal.SIGTERM if number in _STOP else signal.Signals(number)
            _send(self._server_pidfd, wanted)

    def _hear(self) -> None:
        """Do what the server asks, if it is one of the two things that it may ask."""
        try:
            data = self._ours.recv(MESSAGE_MAX, socket.MSG_DONTWAIT)
        except BlockingIOError:  # the event was of a launcher that has been forgotten meanwhile
            return
        except OSError:
            data = b""
        if not data:
            self._waiting.unregister(self._ours.fileno())
            return
        try:
            message = decode(data)
        except ProtocolError:
            return
        if message == {"op": LAUNCH}:
            self._launch()
        elif message == {"op": KILL, "pid": self._launcher} and self._launcher_pidfd >= 0:
            _send(self._launcher_pidfd, signal.SIGKILL)

    def _launch(self) -> None:
        if self._launcher_pidfd >= 0:
            self._reap_launcher()  # its server may have heard of its end before us
        if self._hello is None or self._launcher_pidfd >= 0:
            self._refuse(_ENOTSUP if self._hello is None else _EBUSY)
            return
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with ours, theirs:
                ours.send(self._hello)  # the first that it hears, and nobody can take it back
                self._launcher = begin(
                    [sys.executable, *OPTIONS, PROGRAM],
                    ENVIRONMENT,
                    at={0: self._null, 1: self._null, 2: self._null, SOCKET_FD: theirs.fileno()},
                    identity=None if self._as_root else self._identity,
                    session=False,  # it takes one itself
                )
                self._launcher_pidfd = os.pidfd_open(self._launcher)
                self._waiting.register(self._launcher_pidfd, select.POLLIN)
                answer = encode({"op": LAUNCHED, "pid": self._launcher})
                self._answer(answer, ours.fileno(), self._launcher_pidfd)
        except OSError as error:
            self._refuse(error.errno or 0)

    def _refuse(self, number: int) -> None:
        try:
            self._answer(encode({"op": REFUSED, "errno": number}))
        except OSError:
            return  # the server has gone, or does not listen

    def _answer(self, data: bytes, *fds: int) -> None:
        """Never wait for a server that does not listen."""
        packed = b"".join(fd.to_bytes(4, "little") for fd in fds)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, packed)] if fds else []
        self._ours.sendmsg([data], rights, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def _reap_launcher(self) -> None:
        """Forget it if it has ended; an event may be of its predecessor, of the same number."""
        if os.waitpid(self._launcher, os.WNOHANG)[0] == 0:
            return
        self._waiting.unregister(self._launcher_pidfd)
        os.close(self._launcher_pidfd)
        self._launcher = self._launcher_pidfd = -1

    def _end(self) -> int:
        """Wait until the launcher has gone after its server; return the server's exit status."""
        _, status = os.waitpid(self._server, 0)
        if self._launcher_pidfd >= 0:
            if not select.select([self._launcher_pidfd], [], [], _END_SECONDS)[0]:
                _send(self._launcher_pidfd, signal.SIGKILL)
                select.select([self._launcher_pidfd], [], [], _END_SECONDS)
            self._reap_launcher()
        ended = os.waitstatus_to_exitcode(status)
        return ended if ended >= 0 else 128 - ended


def _send(pidfd: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return  # it has ended, and its descriptor says so
