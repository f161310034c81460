"""Identifiers: UUID version 7 for what we name, and the rules for names that others give."""

import os
import re
import threading
import uuid
from collections.abc import Callable
from typing import Final

from rookhold_types.clock import Clock, now_ms

_COUNTER_BITS: Final = 12
_COUNTER_SEED_MASK: Final = 0x7FF  # a new millisecond starts in the lower half: room to count on
_IDENTITY: Final = re.compile(r"[!#-\[\]-~]{1,128}")
_IDEMPOTENCY_KEY: Final = re.compile(r"[!-~]{1,128}")
_JOB_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class IdSource:
    """Makes UUIDv7 texts that only ever grow, also when the clock stands still or steps back.

    Layout of RFC 9562, section 5.7: 48 bits of Unix milliseconds, a 12-bit counter in rand_a
    (method 1 of its section 6.2), 62 random bits. Safe to share between threads.
    """

    def __init__(self, clock: Clock = now_ms, random: Callable[[int], bytes] = os.urandom) -> None:
        self._clock = clock
        self._random = random
        self._lock = threading.Lock()
        self._ms = -1
        self._counter = 0

    def new(self) -> str:
        noise = int.from_bytes(self._random(10), "big")
        with self._lock:
            ms = self._clock()
            if ms > self._ms:
                self._ms, self._counter = ms, (noise >> 64) & _COUNTER_SEED_MASK
            elif self._counter + 1 < 1 << _COUNTER_BITS:
                self._counter += 1
            else:  # 2048 or more in one millisecond: borrow from the next one
                self._ms, self._counter = self._ms + 1, 0
            head = (self._ms << 16) | 0x7000 | self._counter
        tail = (noise & (2**62 - 1)) | (1 << 63)
        return str(uuid.UUID(int=(head << 64) | tail))


_SOURCE: Final = IdSource()


def new_job_id() -> str:
    """Return a new job id; later ids of this process sort after earlier ones."""
    return _SOURCE.new()


def new_request_id() -> str:
    """Return a new request id, in the same form as a job id."""
    return _SOURCE.new()


def is_job_id(text: str) -> bool:
    """Whether `text` has the form of our job ids; says nothing about the job's existence."""
    return _JOB_ID.fullmatch(text) is not None


def valid_identity(text: str) -> bool:
    """Whether `text` may name a tenant or principal.

    1 to 128 printable ASCII characters without space, double quote and backslash.
    """
    return _IDENTITY.fullmatch(text) is not None


def valid_idempotency_key(text: str) -> bool:
    """Whether `text` may be an idempotency key: 1 to 128 visible ASCII characters."""
    return _IDEMPOTENCY_KEY.fullmatch(text) is not None
