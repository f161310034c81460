"""Whether each job ended as it may: as its program says, cancelled if asked, or hurt by a kill."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rookhold_attestation import AttestationError, Policy, PublicKey, verify_envelope

if TYPE_CHECKING:
    from faults.book import Book
    from faults.traffic import Sent

# How a receipt names the end of a job whose server, launcher or first process was killed; the last
# one if that was after its end, while its outputs were on their way.
HURT = (None, "server_restarted", "requested_output_unavailable")


def verdict(book: Book, sent: Sent, key: PublicKey) -> tuple[bool, list[str]]:
    """Return whether a kill or a stop hurt the job, and what is wrong with how it ended."""
    job_id = sent.job_id
    assert job_id is not None
    text = book.receipt(job_id)
    if text is None:
        return False, [f"{job_id}: no receipt"]
    receipt = json.loads(text)
    status, killed_by = receipt["outcome"], receipt["killed_by"]
    name = f"{job_id} ({sent.program.name})"
    found = _signature(book, sent, status, key)
    if status == "error" and killed_by in HURT and status not in sent.program.ends:
        return True, found
    if status == "cancelled":  # by its tenant, or by a server that was told to stop
        return not sent.cancel_asked, found
    if status not in sent.program.ends:
        found.append(f"{name}: ended {status}, killed by {killed_by}")
    wanted = sent.program.printed_sha256
    if status == "succeeded" and wanted not in (None, receipt["output"]["stdout_sha256"]):
        found.append(f"{name}: succeeded, but printed something else")
    return False, found


def _signature(book: Book, sent: Sent, status: str, key: PublicKey) -> list[str]:
    job_id = sent.job_id
    assert job_id is not None
    stored = book.attestation(job_id)
    if stored is None:
        return [f"{job_id}: not signed"]
    envelope, artifact = stored
    try:
        verified = verify_envelope(
            envelope, artifact=artifact, keys=[key], policy=Policy(tenant=sent.tenant)
        )
    except AttestationError as error:
        return [f"{job_id}: its envelope does not verify ({error.code})"]
    if (verified.execution_id, verified.outcome) != (job_id, status):
        return [f"{job_id}: its envelope speaks of {verified.execution_id}, {verified.outcome}"]
    return []
