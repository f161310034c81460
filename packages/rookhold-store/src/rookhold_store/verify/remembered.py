"""Reads evidence that was kept outside the store: receipts, envelopes, results, event hashes."""

from __future__ import annotations

import binascii
import hashlib
from typing import Any

import msgspec

from rookhold_store.errors import EvidenceUnreadableError
from rookhold_store.verify.kept import Kept
from rookhold_types.errors import CanonicalError
from rookhold_types.receipts import DIGEST_MEMBER, receipt_digest


def read_kept(content: bytes) -> Kept:
    """Return what a document remembers of its job; raises EvidenceUnreadableError.

    It may be a receipt, a job as the API shows it, an envelope, a result artifact, or an object
    with `job_id`, `seq` and `event_hash`, as an event stream shows them. A receipt must have its
    own digest. Signatures are not checked.
    """
    document = _object(content)
    if isinstance(document.get("payload"), str):
        return _envelope(document, content)
    if isinstance(document.get("receipt"), dict):
        return _receipt(document["receipt"])
    if "seq" in document:
        return _event(document)
    if "schema_version" in document:
        return Kept(
            job_id=_text(document, "job_id"),
            receipt_sha256=_text(document, DIGEST_MEMBER),
            result_sha256=hashlib.sha256(content).hexdigest(),
        )
    return _receipt(document)


def _envelope(document: dict[str, Any], content: bytes) -> Kept:
    try:
        payload = binascii.a2b_base64(document["payload"])
    except ValueError:
        raise EvidenceUnreadableError("the payload of the envelope is not base64") from None
    predicate = _object(payload).get("predicate")
    if not isinstance(predicate, dict) or not isinstance(predicate.get("receipt"), dict):
        raise EvidenceUnreadableError("the envelope holds no receipt")
    kept = _receipt(predicate["receipt"])
    result = predicate.get("result")
    return msgspec.structs.replace(
        kept,
        result_sha256=_text(result, "sha256") if isinstance(result, dict) else None,
        envelope_sha256=hashlib.sha256(content).hexdigest(),
    )


def _receipt(receipt: dict[str, Any]) -> Kept:
    job_id = _text(receipt, "job_id")
    digest = _text(receipt, DIGEST_MEMBER)
    try:
        right = receipt_digest(receipt) == digest
    except CanonicalError:
        right = False
    if not right:
        raise EvidenceUnreadableError("the receipt does not have the digest that it says")
    chain = receipt.get("event_chain")
    seq = head = None
    if isinstance(chain, dict) and isinstance(chain.get("head"), str):
        seq, head = chain.get("events"), chain["head"]
    return Kept(
        job_id=job_id,
        seq=seq if type(seq) is int else None,
        head=head if type(seq) is int else None,
        receipt_sha256=digest,
    )


def _event(document: dict[str, Any]) -> Kept:
    seq = document["seq"]
    if type(seq) is not int or seq < 1:
        raise EvidenceUnreadableError("seq is not the number of an event")
    return Kept(job_id=_text(document, "job_id"), seq=seq, head=_text(document, "event_hash"))


def _object(content: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        raise EvidenceUnreadableError("it is not JSON") from None
    if not isinstance(document, dict):
        raise EvidenceUnreadableError("it is not a JSON object")
    return document


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise EvidenceUnreadableError(f"it is no evidence of a job: it has no {name}")
    return value
