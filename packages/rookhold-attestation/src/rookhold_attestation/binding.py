"""Whether stored bytes belong together: artifact, envelope, receipt, job and tenant.

Structural, not a signature check: a store uses it to keep from handing out another job's evidence.
"""

import hashlib
from collections.abc import Mapping

from . import profile
from .envelope import Envelope, read_envelope
from .errors import AttestationError
from .statement import Statement, read_statement
from .strictjson import parse


def binds(
    *,
    envelope: bytes,
    artifact: bytes,
    job_id: str,
    tenant: str,
    receipt_sha256: str,
    result_sha256: str,
    media_type: str,
) -> bool:
    """Say whether artifact and envelope name this job, tenant, receipt and result digest.

    Never raises for what the bytes hold: anything unreadable does not bind.
    """
    if len(envelope) > profile.ENVELOPE_BYTES_MAX or len(artifact) > profile.ARTIFACT_BYTES_MAX:
        return False
    if hashlib.sha256(artifact).hexdigest() != result_sha256:
        return False
    try:
        members = parse(artifact, profile.ARTIFACT_DOCUMENT)
        decoded = read_envelope(envelope)
        statement = read_statement(decoded.decoded_payload())
    except AttestationError:
        return False
    wanted = {
        "schema_version": 1,
        "job_id": job_id,
        "tenant": tenant,
        "receipt_sha256": receipt_sha256,
    }
    if not isinstance(members, dict) or not _holds(members, wanted):
        return False
    return (
        _is_profile(decoded, statement)
        and _describes(statement, len(artifact), result_sha256, media_type)
        and _names(statement, job_id, tenant, receipt_sha256)
    )


def _holds(members: Mapping[str, object], wanted: Mapping[str, object]) -> bool:
    # The type is compared too, because True and 1.0 equal 1.
    return all(
        type(members.get(name)) is type(value) and members.get(name) == value
        for name, value in wanted.items()
    )


def _is_profile(envelope: Envelope, statement: Statement) -> bool:
    return (
        envelope.payload_type == profile.PAYLOAD_TYPE
        and bool(envelope.signatures)
        and statement.statement_type == profile.STATEMENT_TYPE
        and statement.predicate_type == profile.PREDICATE_TYPE
        and statement.predicate.schema_version == profile.SCHEMA_VERSION
    )


def _describes(statement: Statement, size: int, sha256: str, media_type: str) -> bool:
    if len(statement.subjects) != 1:
        return False
    subject, result = statement.subjects[0], statement.predicate.result
    return (
        subject.digests.get("sha256") == sha256 == result.sha256
        and subject.media_type == media_type == result.media_type
        and subject.name == result.name
        and result.size_bytes == size
    )


def _names(statement: Statement, job_id: str, tenant: str, receipt_sha256: str) -> bool:
    predicate = statement.predicate
    receipt = predicate.receipt
    return (
        isinstance(receipt, dict)
        and predicate.execution_id == job_id
        and predicate.tenant == tenant
        and receipt.get("job_id") == job_id
        and receipt.get("receipt_sha256") == receipt_sha256
        and receipt.get("tenant", tenant) == tenant
    )
