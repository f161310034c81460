"""How server, launcher and supervisors speak: values, frames and the names of the operations.

The server hands the launcher one SOCK_SEQPACKET message per job, with that job's descriptors. All
else about a job goes over its own stream socket, in frames, between the server and its supervisor.
Half-closing that socket is how the server ends a job, so a dead server ends it as well.
"""

from __future__ import annotations

from _socket import MSG_NOSIGNAL

TYPE_CHECKING = False  # as typing's, without importing typing
if TYPE_CHECKING:
    from _socket import socket
    from typing import Any

VERSION = 1

MESSAGE_MAX = 128 * 1024  # one SEQPACKET message; below the default socket buffer
FRAME_MAX = 8 * 1024 * 1024  # code, inputs, or one output; checked before anything is allocated
DEPTH_MAX = 6
_COUNT_MAX = 4096
_SEND_SECONDS = 5.0

HELLO = "hello"  # server -> launcher: version and settings
READY = "ready"  # launcher -> server: able to start; supervisor -> server: the payload runs
REFUSED = "refused"  # launcher -> server: cannot work here; stage
START = "start"  # server -> launcher: one job, with its descriptors
KILL = "kill"  # server -> launcher: end this job's supervisor, its own way has failed
FAILED = "failed"  # supervisor -> server: nothing of the job ran; stage
END = "end"  # supervisor -> server: no other process is left; facts
OUTPUT = "output"  # supervisor -> server: one requested output
DONE = "done"  # supervisor -> server: nothing follows

# Why the supervisor ended the job, in the facts of END; nothing if the payload ended by itself.
WALL, KILLED, OOM, CPU_GROUP, CPU_SUM = "wall", "killed", "oom", "cpu-group", "cpu-sum"


class ProtocolError(Exception):
    """What came is not what this protocol allows; the peer is not to be trusted further."""


def encode(value: Any) -> bytes:
    """Return the bytes of a value made of None, int, str, bytes, list, tuple and dict."""
    parts: list[bytes] = []
    _encode(value, parts)
    return b"".join(parts)


def _encode(value: Any, parts: list[bytes]) -> None:
    if value is None:
        parts.append(b"n")
    elif isinstance(value, int):
        parts.append(b"i%d;" % value)
    elif isinstance(value, bytes):
        parts.append(b"b%d:" % len(value))
        parts.append(value)
    elif isinstance(value, str):
        raw = value.encode()
        parts.append(b"s%d:" % len(raw))
        parts.append(raw)
    elif isinstance(value, (list, tuple)):
        parts.append(b"l%d:" % len(value))
        for item in value:
            _encode(item, parts)
    elif isinstance(value, dict):
        parts.append(b"d%d:" % len(value))
        for key, item in value.items():
            _encode(key, parts)
            _encode(item, parts)
    else:
        raise ProtocolError("a value of a type that is not spoken here")


def decode(data: bytes) -> Any:
    """Return the value, or raise ProtocolError for anything but exactly one well-formed value."""
    try:
        value, end = _decode(data, 0, 0)
    except (ValueError, IndexError, TypeError) as error:
        raise ProtocolError("malformed value") from error
    if end != len(data):
        raise ProtocolError("something follows the value")
    return value


def _number(data: bytes, at: int, stop: bytes) -> tuple[int, int]:
    end = data.index(stop, at, at + 24)
    return int(data[at:end]), end + 1


def _sized(data: bytes, at: int) -> tuple[bytes, int]:
    size, start = _number(data, at, b":")
    if size < 0 or start + size > len(data):
        raise ValueError("length")
    return data[start : start + size], start + size


def _decode(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    kind = data[at]
    at += 1
    if kind == 0x69:  # i
        return _number(data, at, b";")
    if kind == 0x62:  # b
        return _sized(data, at)
    if kind == 0x73:  # s
        raw, at = _sized(data, at)
        return raw.decode(), at
    if kind == 0x6E:  # n
        return None, at
    count, at = _number(data, at, b":")
    if depth >= DEPTH_MAX or not 0 <= count <= _COUNT_MAX:
        raise ValueError("nesting")
    if kind == 0x6C:  # l
        items: list[Any] = []
        for _ in range(count):
            item, at = _decode(data, at, depth + 1)
            items.append(item)
        return items, at
    if kind == 0x64:  # d
        members: dict[Any, Any] = {}
        for _ in range(count):
            key, at = _decode(data, at, depth + 1)
            members[key], at = _decode(data, at, depth + 1)
        return members, at
    raise ValueError("kind")


def frame(value: Any) -> bytes:
    """Return a value as it travels on a job's stream socket: four bytes of length, then it."""
    data = encode(value)
    if len(data) > FRAME_MAX:
        raise ProtocolError("frame too large")
    return len(data).to_bytes(4, "little") + data


def send_frame(sock: socket, *values: Any) -> None:
    """Send frames at once, or give up when nobody takes them: the peer has gone, or hangs."""
    data = b"".join(frame(value) for value in values)
    sock.settimeout(_SEND_SECONDS)
    try:
        sock.sendall(data, MSG_NOSIGNAL)
    except OSError:
        return


class Frames:
    """Puts the frames of a stream back together."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Return the values that `data` completes."""
        self._buffer += data
        values: list[Any] = []
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "little")
            if size > FRAME_MAX:
                raise ProtocolError("frame too large")
            if len(self._buffer) < 4 + size:
                break
            values.append(decode(bytes(self._buffer[4 : 4 + size])))
            del self._buffer[: 4 + size]
        return values


def receive_frame(sock: socket) -> Any:
    """Read one frame from a blocking socket; ProtocolError if it ends before that."""
    size = int.from_bytes(_exactly(sock, 4), "little")
    if size > FRAME_MAX:
        raise ProtocolError("frame too large")
    return decode(_exactly(sock, size))


def _exactly(sock: socket, size: int) -> bytes:
    first = sock.recv(size)
    if len(first) == size:
        return first
    data = bytearray(first)
    while first and len(data) < size:
        first = sock.recv(min(size - len(data), 1 << 20))
        data += first
    if len(data) < size:
        raise ProtocolError("the peer is gone")
    return bytes(data)
