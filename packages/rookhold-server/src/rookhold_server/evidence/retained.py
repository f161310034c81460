"""What of each output stream is durably stored: bytes, digest, and whether it was cut."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from rookhold_types.events import EventKind, WireEvent
from rookhold_types.output import record_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rookhold_exec.executor import OutputRecord


class StreamTally:
    """Grows by records that were committed, never by records that were only offered."""

    __slots__ = ("_hash", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._hash = hashlib.sha256()

    def copy(self) -> StreamTally:
        made = StreamTally()
        made.bytes, made._hash = self.bytes, self._hash.copy()
        return made

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()

    def add(self, kept: bytes) -> None:
        self.bytes += len(kept)
        self._hash.update(kept)


class Retained:
    """Both streams of one job."""

    def __init__(self) -> None:
        self.stdout = StreamTally()
        self.stderr = StreamTally()
        self.truncated = False

    def copy(self) -> Retained:
        made = Retained()
        made.stdout, made.stderr = self.stdout.copy(), self.stderr.copy()
        made.truncated = self.truncated
        return made

    def add_record(self, record: OutputRecord) -> None:
        raw = record.raw if record.raw is not None else record.line.encode()
        tally = self.stdout if record.stream == "stdout" else self.stderr
        tally.add(raw + b"\n" if record.eol else raw)

    @classmethod
    def from_history(cls, events: Iterable[WireEvent]) -> Retained:
        """Count what a job's stored events hold, where a failed commit left doubt."""
        retained = cls()
        for event in events:
            if event.kind == EventKind.TRUNCATED:
                retained.truncated = True
            elif event.kind == EventKind.STDOUT:
                retained.stdout.add(record_bytes(event.data))
            elif event.kind == EventKind.STDERR:
                retained.stderr.add(record_bytes(event.data))
        return retained
