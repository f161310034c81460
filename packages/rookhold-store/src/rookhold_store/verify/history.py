"""One job's events, followed one by one: their places, their links, and what they add up to."""

from __future__ import annotations

import binascii
import hashlib
from typing import Any, Final

import msgspec

from rookhold_store.accounting import ROW_BYTES
from rookhold_store.verify.cells import is_json
from rookhold_store.verify.finding import Finding
from rookhold_store.verify.tables import EVENTS
from rookhold_types.canonical import canonical
from rookhold_types.errors import CanonicalError, EventDataError
from rookhold_types.events import HASH_VERSION, ChainResult, EventKind, event_hash
from rookhold_types.output import record_bytes

FINDINGS_MAX: Final = 100  # of one history: one that is all wrong need not be listed whole
_HASHED: Final = "prev_hash, seq, ts_ms, kind and data_json"
_SINGLE: Final = (EventKind.ACCEPTED.value, EventKind.STARTED.value, EventKind.FINISHED.value)
_STREAMS: Final = (EventKind.STDOUT.value, EventKind.STDERR.value)


class Told(msgspec.Struct, frozen=True):
    """An `accepted`, `started` or `finished` event, once its data was found to be an object."""

    seq: int
    ts_ms: int
    hashed: bool
    data: dict[str, Any]


class Stream:
    """The raw bytes of the retained records of one stream."""

    def __init__(self) -> None:
        self.bytes = 0
        self._hash = hashlib.sha256()

    def add(self, kept: bytes) -> None:
        self.bytes += len(kept)
        self._hash.update(kept)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


class History:
    """What the events of one job say.

    After a break the following events are judged by their own neighbours, so that one missing event
    is one finding and not one for each that comes after it.
    """

    def __init__(self, job_id: str, *, migrated: bool) -> None:
        self.job_id = job_id
        self._migrated = migrated  # an older store may have begun the history, or left it out
        self.findings: list[Finding] = []
        self.seq = 0  # of the last event
        self.events = 0
        self.legacy = 0
        self.head = ""
        self.retained_bytes = 0
        self.told: dict[str, Told] = {}
        self.streams = {name: Stream() for name in _STREAMS}
        self.truncated = False
        self.artifacts: list[dict[str, Any]] = []
        self.noted: dict[int, str | None] = {}  # the hashes of events that somebody asks for
        self._last_kind: str | None = None

    def add(self, row: tuple[Any, ...]) -> bool:
        """Take the next event; False if the order of reading itself is broken."""
        seq = row[1]
        broken = EVENTS.complaints(row)
        for column, problem in broken:
            self._find(column, problem, seq if type(seq) is int else None)
        self.events += 1
        self.retained_bytes += ROW_BYTES + _size(row[3]) + _size(row[4])
        self.retained_bytes += _size(row[5]) + _size(row[6])
        if type(seq) is not int:
            self.head = ""
            return True
        if seq <= self.seq:
            self._find("seq", f"follows {self.seq}: the events are not in order", seq)
            return False
        if seq in self.noted:
            self.noted[seq] = row[6]
        if seq != self.seq + 1:
            self._gap(seq)
        self._follow(row, broken=bool(broken))
        self.seq = seq
        return True

    def end(self) -> ChainResult:
        """Return the counts as a receipt states them."""
        return ChainResult(
            events=self.events,
            verified_events=self.events - self.legacy,
            legacy_events=self.legacy,
            head=self.head or None,
        )

    def _gap(self, seq: int) -> None:
        missing = self.seq + 1
        what = (
            f"{missing} is missing" if seq == missing + 1 else f"{missing}..{seq - 1} are missing"
        )
        self._find("seq", f"{what}: the next event is {seq}", missing)

    def _follow(self, row: tuple[Any, ...], *, broken: bool) -> None:
        _, seq, ts_ms, kind, data_json, prev_hash, stored, version = row
        gap = seq != self.seq + 1
        if version == 0:
            self.legacy += 1
            if self.events > self.legacy:
                self._find("hash_version", "is 0 after a hashed event", seq)
        elif prev_hash != self.head and not gap and "prev_hash" not in self._named(seq):
            self._find("prev_hash", "is not the hash of the event before it", seq)
        self.head = stored if isinstance(stored, str) else ""
        if (
            version == HASH_VERSION
        ):  # those of before the hashes were normalised, and may say anything
            self._order(kind, seq)
        data = self._data(data_json, seq, hashed=version == HASH_VERSION)
        if not broken and version == HASH_VERSION:
            made = event_hash(self.job_id, prev_hash, seq, ts_ms, kind, data_json.encode())
            if made != stored:
                self._find(
                    "event_hash",
                    f"is not the hash of {_HASHED}",
                    seq,
                )
        if data is not None and type(kind) is str and type(ts_ms) is int:
            self._gather(kind, Told(seq, ts_ms, version == HASH_VERSION, data))

    def _named(self, seq: int) -> set[str]:
        return {f.place.partition(".")[2] for f in self.findings if f.seq == seq}

    def _data(self, text: object, seq: int, *, hashed: bool) -> dict[str, Any] | None:
        if type(text) is not str:
            return None
        try:
            data = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            if hashed or not is_json(text):
                self._find("data_json", "is not JSON", seq)
            return None
        if hashed:
            try:
                exact = canonical(data) == text.encode()
            except CanonicalError:
                exact = False
            if not exact:
                self._find("data_json", "is not canonical JSON", seq)
            elif type(data) is not dict:
                self._find("data_json", "is not an object", seq)
        return data if type(data) is dict else None

    def _order(self, kind: object, seq: int) -> None:
        last, self._last_kind = self._last_kind, kind if isinstance(kind, str) else None
        if seq == 1 and kind != EventKind.ACCEPTED and not self._migrated:
            self._find("kind", "of the first event is not accepted", seq)
        elif seq > 1 and kind == EventKind.ACCEPTED:
            self._find("kind", "is accepted, but this is not the first event", seq)
        elif kind == EventKind.STARTED and EventKind.STARTED in self.told:
            self._find("kind", "is started for a second time", seq)
        elif last == EventKind.FINISHED:
            self._find("kind", "follows the finished event", seq)

    def _gather(self, kind: str, told: Told) -> None:
        if kind in _SINGLE:
            known = self.told.get(kind)
            if known is None or (told.hashed and not known.hashed):
                self.told[kind] = told
        elif kind in _STREAMS:
            try:
                self.streams[kind].add(record_bytes(told.data))
            except EventDataError:
                if told.hashed:
                    self._find("data_json", "is not an output record", told.seq)
        elif kind == EventKind.TRUNCATED:
            self.truncated = True
        elif kind == EventKind.ARTIFACT:
            self._artifact(told)

    def _artifact(self, told: Told) -> None:
        data = told.data
        try:
            content = binascii.a2b_base64(data["content_base64"], strict_mode=True)
            right = (
                len(content) == data["size_bytes"]
                and hashlib.sha256(content).hexdigest() == data["sha256"]
            )
            self.artifacts.append({name: data[name] for name in ("path", "size_bytes", "sha256")})
        except (KeyError, TypeError, ValueError):
            if told.hashed:
                self._find("data_json", "is not an artifact", told.seq)
            return
        if not right and told.hashed:
            self._find("data_json", "says another size or digest than its content has", told.seq)

    def _find(self, column: str, problem: str, seq: int | None) -> None:
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(
                Finding(place=f"events.{column}", problem=problem, job_id=self.job_id, seq=seq)
            )
        elif len(self.findings) == FINDINGS_MAX:
            self.findings.append(
                Finding(place="events", problem="has more findings", job_id=self.job_id)
            )


def _size(value: object) -> int:
    if isinstance(value, str):
        return len(value) if value.isascii() else len(value.encode())
    return len(value) if isinstance(value, bytes) else 0
