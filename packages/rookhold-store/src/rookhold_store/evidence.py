"""Receipts: the store's facts over a caller's, and those of jobs that no worker ended."""

from __future__ import annotations

import hashlib
from bisect import bisect
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rookhold_types.canonical import canonical
from rookhold_types.jobs import JobSpec
from rookhold_types.limits import Limits
from rookhold_types.receipts import (
    DIGEST_MEMBER,
    RECEIPT_VERSION,
    SealedReceipt,
)
from rookhold_types.requested import unrun_members
from rookhold_types.states import KilledBy
from rookhold_types.wire import plain

if TYPE_CHECKING:
    from collections.abc import Mapping


class Parts(NamedTuple):
    """A caller's receipt, member by member in canonical JSON, so that sealing only joins."""

    members: dict[str, bytes]
    size: int


def parts(receipt: object) -> Parts:
    """Prepare a receipt; what is not an object is kept under `details`."""
    members = receipt if isinstance(receipt, dict) else {"details": receipt}
    canonical(dict.fromkeys(members))  # the names too must be such as JSON has
    encoded = {name: canonical(value) for name, value in members.items()}
    return Parts(encoded, sum(map(len, encoded.values())))


def seal(caller: Parts, core: Mapping[str, Any]) -> SealedReceipt:
    """Join the caller's members with the store's, which win, and add the digest of all of them."""
    members = {
        **caller.members,
        **{name: canonical(value) for name, value in core.items()},
    }
    members.pop(DIGEST_MEMBER, None)
    names = sorted(members)
    chunks = [_label(name) + members[name] for name in names]
    digest = hashlib.sha256(b"{%b}" % b",".join(chunks)).hexdigest()
    chunks.insert(bisect(names, DIGEST_MEMBER), _label(DIGEST_MEMBER) + canonical(digest))
    return SealedReceipt(text=b"{%b}" % b",".join(chunks), sha256=digest)


@lru_cache(maxsize=256)
def _label(name: str) -> bytes:
    """Return a member's name as it stands in the text; receipts all have the same few."""
    return canonical(name) + b":"


def core_members(
    *,
    job_id: str,
    status: str,
    exit_code: int | None,
    created_at_ms: int,
    started_at_ms: int | None,
    finished_at_ms: int,
    duration_ms: int,
    event_chain: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what only the finalising transaction can say."""
    return {
        "version": RECEIPT_VERSION,
        "job_id": job_id,
        "outcome": str(status),
        "exit_code": exit_code,
        "created_at_ms": created_at_ms,
        "started_at_ms": started_at_ms,
        "finished_at_ms": finished_at_ms,
        "duration_ms": duration_ms,
        "event_chain": dict(event_chain),
    }


def queued_cancel(spec_json: bytes) -> dict[str, Any]:
    """Return the receipt of a job that was cancelled while it waited: nothing ran, all is known.

    Empty if the stored spec does not decode; the core members then stand alone.
    """
    try:
        spec = msgspec.json.decode(spec_json, type=JobSpec)
        return unrun_members(spec, KilledBy.CANCELLED_BEFORE_START.value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}


def restart(spec_json: bytes) -> dict[str, Any]:
    """Return the receipt of a job that was running when its server died: little can be known."""
    receipt: dict[str, Any] = {
        "killed_by": KilledBy.SERVER_RESTARTED.value,
        "terminal_reason": KilledBy.SERVER_RESTARTED.value,
        "evidence_complete": False,
    }
    try:
        spec = msgspec.json.decode(spec_json)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return receipt
    if not isinstance(spec, dict):
        return receipt
    if (limits := _limits(spec.get("limits"))) is not None:
        receipt["requested_limits"] = limits
    code, stdin = spec.get("code"), spec.get("stdin")
    if isinstance(code, str):
        receipt["code_sha256"] = _sha256(code)
        if stdin is None or isinstance(stdin, str):
            receipt["stdin_sha256"] = _sha256(stdin or "")
    return receipt


def _limits(value: object) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    try:
        return plain(msgspec.convert(value, Limits))
    except msgspec.ValidationError:
        return None


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
