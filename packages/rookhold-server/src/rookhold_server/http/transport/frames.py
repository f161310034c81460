"""What a peer's HTTP/2 frames cost, and whether one is under way: counted before they are parsed.

A frame that carries nothing costs a server more than its sender. Such frames are paid for from an
account that fills with time and with answers that the peer really takes; whoever empties it is
told to be calm. A peer that uses HTTP/2 as meant never comes near the end of it.
"""

from __future__ import annotations

from typing import Final

_PREFACE_BYTES: Final = 24
_HEAD_BYTES: Final = 9
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _CONTINUATION = 0, 1, 3, 4, 9
_END_STREAM, _END_HEADERS = 1, 4

BURST: Final = 1000.0
PER_SECOND: Final = 20.0
RESET_COST: Final = 5  # it undoes a request that was begun
ANSWER_CREDIT: Final = 5
FRAME_CREDIT: Final = 4  # per frame of an answer: a window update for the stream, one for all
_BYTES_PER_COST: Final = 256  # of a SETTINGS frame, which may hold thousands of settings


class Account:
    """`since`: when the frame, or the head of several frames, began that is not complete yet."""

    def __init__(self, now: float) -> None:
        self.since: float | None = now
        self._balance = BURST
        self._filled_at = now
        self._preface = _PREFACE_BYTES
        self._head = b""
        self._left = 0  # bytes of the current frame still to come
        self._in_head = False  # between HEADERS and the end of the header block

    def feed(self, data: bytes, now: float) -> bool:
        """Count the frames of what came next; False once the account is empty."""
        self._balance = min(BURST, self._balance + (now - self._filled_at) * PER_SECOND)
        self._filled_at = now
        at = min(self._preface, len(data))
        self._preface -= at
        while at < len(data):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
            else:
                if not self._head and not self._in_head:
                    self.since = now
                step = min(_HEAD_BYTES - len(self._head), len(data) - at)
                self._head += data[at : at + step]
                if len(self._head) == _HEAD_BYTES:
                    self._begin(self._head)
                    self._head = b""
            at += step
        if not (self._left or self._head or self._in_head or self._preface):
            self.since = None
        return self._balance > 0

    def charge(self, cost: int) -> None:
        self._balance -= cost

    def credit(self, amount: int) -> None:
        self._balance = min(BURST, self._balance + amount)

    def _begin(self, head: bytes) -> None:
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        self._left = length
        if kind == _HEADERS:
            self._in_head = not flags & _END_HEADERS
        elif kind == _CONTINUATION:
            self._in_head = not flags & _END_HEADERS
            self.charge(1)
        elif kind == _RST_STREAM:
            self.charge(RESET_COST)
        elif kind == _SETTINGS:
            self.charge(1 + length // _BYTES_PER_COST)
        elif kind != _DATA or (length == 0 and not flags & _END_STREAM):
            self.charge(1)
