"""A terminal job's receipt: its own digest, and that it says what row and history say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from rookhold_types.canonical import canonical
from rookhold_types.errors import CanonicalError
from rookhold_types.events import EventKind
from rookhold_types.receipts import (
    DIGEST_MEMBER,
    POLICY_MEMBERS,
    RECEIPT_VERSION,
    policy_sha256,
    receipt_digest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rookhold_store.verify.history import History
    from rookhold_store.verify.jobs import Job

_COLUMN: Final = "receipt_json"


def read(job: Job) -> dict[str, Any] | None:
    """Return the receipt, if there is one that is an object."""
    if type(job.receipt_json) is not str:
        return None
    try:
        receipt = msgspec.json.decode(job.receipt_json)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    return receipt if type(receipt) is dict else None


def problems(job: Job, history: History, *, hidden: bool) -> Iterator[str]:
    """Yield what is wrong with `jobs.receipt_json`."""
    if job.receipt_json is None:
        # Those of before the hashes never got one; a job that is being removed has lost its own.
        if job.terminal and not hidden and history.legacy < history.events:
            yield "is null for a job that has ended"
        return
    if not job.terminal:
        yield "is set for a job that has not ended"
    receipt = read(job)
    if receipt is None:
        yield "is not a JSON object"
        return
    if (problem := _digest(receipt, job.receipt_json)) is not None:
        yield problem
    yield from _core(job, receipt)
    yield from _policy(receipt)
    if not hidden:  # or the newest events went first, and the receipt speaks of all
        yield from _history(history, receipt)


def _digest(receipt: dict[str, Any], text: str) -> str | None:
    try:
        if receipt_digest(receipt) != receipt.get(DIGEST_MEMBER):
            return "does not have the digest that it says"
        return None if canonical(receipt) == text.encode() else "is not canonical JSON"
    except CanonicalError:
        return "is not canonical JSON"


def _core(job: Job, receipt: dict[str, Any]) -> Iterator[str]:
    wanted: dict[str, Any] = {
        "version": RECEIPT_VERSION,
        "job_id": job.job_id,
        "outcome": job.status,
        "exit_code": job.exit_code,
        "created_at_ms": job.created_at_ms,
        "started_at_ms": job.started_at_ms,
        "finished_at_ms": job.finished_at_ms,
    }
    for member, value in wanted.items():
        if receipt.get(member, ...) != value:
            yield f"says another {member} than the row does"


def _history(history: History, receipt: dict[str, Any]) -> Iterator[str]:
    finished = history.told.get(EventKind.FINISHED.value)
    if finished is not None and finished.data.get("duration_ms") != receipt.get("duration_ms"):
        yield "says another duration_ms than the finished event does"
    if EventKind.STARTED.value in history.told:  # what is said of a job that never ran is nothing
        yield from _outputs(history, receipt)
    stated = receipt.get("event_chain")
    if type(stated) is not dict:
        yield "has no event_chain"
        return
    for member, value in history.end().receipt_member().items():
        if stated.get(member, ...) != value:
            yield f"says another event_chain.{member} than the events have"


def _outputs(history: History, receipt: dict[str, Any]) -> Iterator[str]:
    output = receipt.get("output")
    if type(output) is dict:
        for name, stream in history.streams.items():
            if (
                output.get(f"{name}_bytes") != stream.bytes
                or output.get(f"{name}_sha256") != stream.sha256
            ):
                yield f"says another {name} than its events hold"
        if output.get("truncated") is not None and output["truncated"] is not history.truncated:
            yield "says another truncated than its events do"
    artifacts = receipt.get("artifacts")
    if type(artifacts) is list and artifacts != history.artifacts:
        yield "says other artifacts than its events hold"


def _policy(receipt: dict[str, Any]) -> Iterator[str]:
    if "policy_sha256" in receipt and all(name in receipt for name in POLICY_MEMBERS):
        try:
            right = policy_sha256(receipt) == receipt["policy_sha256"]
        except CanonicalError:
            right = False
        if not right:
            yield "does not have the policy_sha256 that it says"
