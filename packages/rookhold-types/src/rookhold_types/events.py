"""The event history of a job and its hash chain: how a link is made, and how a chain is checked."""

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from rookhold_types.canonical import canonical
from rookhold_types.errors import CanonicalError
from rookhold_types.wire import View

CHAIN_DOMAIN: Final = b"coop:event-chain:v1\x00"  # the profile's wire identity, never renamed
HASH_VERSION: Final = 1
_HASH_LENGTH: Final = (64).to_bytes(8, "big")
LEGACY_VERSION: Final = 0  # events older than the chain; no hash is ever made up for them


class EventKind(StrEnum):
    ACCEPTED = "accepted"
    STARTED = "started"
    STDOUT = "stdout"
    STDERR = "stderr"
    VIOLATION = "violation"
    TRUNCATED = "truncated"
    ARTIFACT = "artifact"
    FINISHED = "finished"


class WireEvent(View, frozen=True, kw_only=True):
    """One event, the same in every surface. `kind` is a text: unknown kinds are preserved."""

    seq: int
    ts_ms: int
    kind: str
    data: dict[str, Any]
    prev_hash: str = ""
    event_hash: str = ""
    hash_version: int = LEGACY_VERSION


def event_hash(
    job_id: str, prev_hash: str, seq: int, ts_ms: int, kind: str, data_json: bytes
) -> str:
    """Return the hash of one event; `data_json` is the canonical JSON of its data.

    Every text is preceded by its length, so that no two different events share a preimage.
    """
    previous = prev_hash.encode("ascii")
    preimage = b"".join(
        (
            _beginning(job_id),
            len(previous).to_bytes(8, "big"),
            previous,
            seq.to_bytes(8, "big", signed=True),
            ts_ms.to_bytes(8, "big", signed=True),
            _field(kind),
            len(data_json).to_bytes(8, "big"),
            data_json,
        )
    )
    return hashlib.sha256(preimage).hexdigest()


def event_hashes(
    job_id: str, prev_hash: str, seq: int, ts_ms: int, events: Iterable[tuple[str, bytes]]
) -> list[str]:
    """Return the hashes of events of one moment that follow each other, the first at `seq`.

    Of each kind and canonical JSON it is the `event_hash`; what they share is made only once.
    """
    beginning, moment = _beginning(job_id), ts_ms.to_bytes(8, "big", signed=True)
    previous = prev_hash.encode("ascii")
    before = beginning + len(previous).to_bytes(8, "big")
    linked = beginning + _HASH_LENGTH
    hashes = []
    for at, (kind, data_json) in enumerate(events, seq):
        place = at.to_bytes(8, "big", signed=True)
        length = len(data_json).to_bytes(8, "big")
        preimage = b"".join((before, previous, place, moment, _field(kind), length, data_json))
        digest = hashlib.sha256(preimage).hexdigest()
        hashes.append(digest)
        before, previous = linked, digest.encode("ascii")
    return hashes


@lru_cache(maxsize=64)
def _beginning(job_id: str) -> bytes:
    """Return how the preimage of each event of a job begins."""
    return CHAIN_DOMAIN + _field(job_id)


@lru_cache(maxsize=256)
def _field(text: str) -> bytes:
    """Return what stands for a text that many events have in common."""
    raw = text.encode()
    return len(raw).to_bytes(8, "big") + raw


class ChainFault(StrEnum):
    """Why a history is not valid."""

    GAP = "gap"  # a sequence number is missing, repeated or out of order
    UNKNOWN_VERSION = "unknown_version"
    LEGACY_WITH_HASH = "legacy_with_hash"
    LINK = "link"  # prev_hash is not the hash of the previous hashed event
    HASH = "hash"  # the event is not the one that was hashed


class ChainResult(Struct, frozen=True, kw_only=True):
    """What a history shows by itself: that nothing inside it was changed, not that it is whole.

    Counts cover the events before the first fault. `head` is the hash that the next event would
    link to: None for no events, after a legacy event, and for a history that is not valid.
    """

    events: int
    verified_events: int
    legacy_events: int
    head: str | None
    fault: ChainFault | None = None
    fault_seq: int | None = None

    @property
    def valid(self) -> bool:
        return self.fault is None

    @property
    def complete(self) -> bool:
        """Whether every event is hashed and verified; a statement of counts."""
        return self.valid and self.verified_events == self.events

    def receipt_member(self) -> dict[str, Any]:
        """Return the `event_chain` member of a receipt over this history."""
        return {
            "version": HASH_VERSION,
            "head": self.head,
            "events": self.events,
            "event_count": self.events,
            "verified_events": self.verified_events,
            "legacy_events": self.legacy_events,
            "complete": self.complete,
        }


class ChainCheck:
    """Checks a history event by event, so that a reader of pages or of a live stream can follow."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._seq = 0
        self._expected = ""
        self._verified = 0
        self._legacy = 0
        self._fault: tuple[ChainFault, int] | None = None

    def add(self, event: WireEvent) -> bool:
        """Take the next event; False from the first fault on."""
        if self._fault is not None:
            return False
        fault = self._fault_of(event)
        if fault is not None:
            self._fault = (fault, event.seq)
            return False
        self._seq = event.seq
        self._expected = event.event_hash
        if event.hash_version == HASH_VERSION:
            self._verified += 1
        else:
            self._legacy += 1
        return True

    def result(self) -> ChainResult:
        fault, seq = (None, None) if self._fault is None else self._fault
        return ChainResult(
            events=self._verified + self._legacy,
            verified_events=self._verified,
            legacy_events=self._legacy,
            head=self._expected or None if fault is None else None,
            fault=fault,
            fault_seq=seq,
        )

    def _fault_of(self, event: WireEvent) -> ChainFault | None:
        if event.seq != self._seq + 1:
            return ChainFault.GAP
        if event.hash_version == LEGACY_VERSION:
            return ChainFault.LEGACY_WITH_HASH if event.prev_hash or event.event_hash else None
        if event.hash_version != HASH_VERSION:
            return ChainFault.UNKNOWN_VERSION
        if event.prev_hash != self._expected:
            return ChainFault.LINK
        return None if event.event_hash == self._hash(event) else ChainFault.HASH

    def _hash(self, event: WireEvent) -> str | None:
        """Recompute the hash; None where no writer of ours could have made the event."""
        try:
            data = canonical(event.data)
            return event_hash(
                self._job_id, event.prev_hash, event.seq, event.ts_ms, event.kind, data
            )
        except (CanonicalError, OverflowError, UnicodeEncodeError):
            return None


def check_chain(job_id: str, events: Iterable[WireEvent]) -> ChainResult:
    """Check a whole history from its first event."""
    check = ChainCheck(job_id)
    for event in events:
        if not check.add(event):
            break
    return check.result()
