"""The server's end of a job's own socket: what its supervisor says, and the way to end the job.

Everything that comes is checked like anything from a sandbox: its order, its sizes, its types. The
supervisor is ours, but it shares a kernel and a file system with the job.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - drives a descriptor on the loop
import socket
from typing import TYPE_CHECKING, Any

import msgspec

from rookhold_exec.executor import CollectedOutput, UncollectedOutput
from rookhold_exec.launcher.protocol import (
    DONE,
    END,
    FAILED,
    KILLED,
    OUTPUT,
    READY,
    Frames,
    ProtocolError,
)
from rookhold_exec.outcome import Facts
from rookhold_types.limits import OUTPUT_FILE_BYTES_MAX, OUTPUT_FILES_BYTES_MAX
from rookhold_types.violations import OutputReason

if TYPE_CHECKING:
    from collections.abc import Callable

GONE, BROKEN = "gone", "broken"  # what `heard` is told besides the operations of the protocol
_RECEIVE = 65_536


class Control:
    """One socket; `heard` is called with each operation, after its values are here."""

    def __init__(self, outputs: tuple[str, ...], heard: Callable[[str], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._wanted = outputs
        self._heard = heard
        self._frames = Frames()
        self._sending: asyncio.Future[None] | None = None
        self._outputs: dict[str, bytes | OutputReason] = {}
        self.controls: tuple[str, ...] | None = None
        self.config: bytes | None = None  # what a runtime was told, if there is one
        self.stage: str | None = None
        self.facts: Facts | None = None
        self.gone = asyncio.Event()
        self._last = False  # whether nothing more will come
        self._socket, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket.fileno(), self._receive)

    def send(self, content: bytes) -> None:
        """Send the job's code and files; what does not go at once goes when there is room."""
        try:
            sent = self._socket.send(content)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # the supervisor says in a moment why it failed, or is gone
        if sent < len(content):
            rest = memoryview(content)[sent:]
            self._sending = asyncio.ensure_future(self._loop.sock_sendall(self._socket, rest))
            self._sending.add_done_callback(_look)

    def end(self) -> None:
        """Half-close: the supervisor takes it as the order to end the job."""
        self._stop_sending()
        if not self.gone.is_set():
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                return  # gone already

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _receive(self) -> None:
        try:
            data = self._socket.recv(_RECEIVE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            for value in self._frames.feed(data):
                self._take(value)
        except (ProtocolError, msgspec.ValidationError, ValueError, LookupError, TypeError):
            data = b""
            self._heard(BROKEN)
        if not data:
            self.close()
        elif self._last:  # its end of file is there in the same moment, as a rule
            self._last = False
            self._receive()

    def close(self) -> None:
        """Forget the socket; a supervisor that still lives ends its job over that."""
        if not self.gone.is_set():
            self._stop_sending()
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self.gone.set()
            self._heard(GONE)

    def _take(self, value: dict[str, Any]) -> None:
        operation = value["op"]
        waiting = self.controls is None and self.stage is None
        if operation == READY and waiting:
            self.config = msgspec.convert(value.get("config"), bytes | None)
            self.controls = tuple(str(name) for name in value["controls"])
        elif operation == FAILED and waiting:
            self.stage = str(value["stage"])
        elif operation == END and self.controls is not None and self.facts is None:
            self.facts = msgspec.convert(value, Facts)
        elif operation == OUTPUT and self.facts is not None:
            self._take_output(value)
        elif operation == DONE and self.facts is not None:
            self._last = True
        else:
            raise ProtocolError("a frame out of its place")
        self._heard(operation)

    def _take_output(self, value: dict[str, Any]) -> None:
        path, content = value["path"], value.get("content")
        if path not in self._wanted or path in self._outputs:
            raise ProtocolError("an output that was not asked for")
        held = sum(len(other) for other in self._outputs.values() if isinstance(other, bytes))
        if not isinstance(content, bytes):
            self._outputs[path] = OutputReason(value["reason"])
        elif len(content) > OUTPUT_FILE_BYTES_MAX:
            self._outputs[path] = OutputReason.TOO_LARGE
        elif held + len(content) > OUTPUT_FILES_BYTES_MAX:
            self._outputs[path] = OutputReason.TOTAL_TOO_LARGE
        else:
            self._outputs[path] = content

    def collected(self) -> tuple[tuple[CollectedOutput, ...], tuple[UncollectedOutput, ...]]:
        """Return the requested outputs that came, and the others; none at all after a kill."""
        good: list[CollectedOutput] = []
        bad: list[UncollectedOutput] = []
        if self.facts is not None and self.facts.cause != KILLED:
            for path in self._wanted:
                content = self._outputs.get(path, OutputReason.UNREADABLE)
                if isinstance(content, bytes):
                    good.append(CollectedOutput(path, content))
                else:
                    bad.append(UncollectedOutput(path, content))
        return tuple(good), tuple(bad)


def _look(sending: asyncio.Future[None]) -> None:
    """Take note of how sending ended, so that the loop does not complain; GONE says the rest."""
    if not sending.cancelled():
        sending.exception()
