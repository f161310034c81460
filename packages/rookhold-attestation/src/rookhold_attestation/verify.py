"""Verification: signatures before meaning, the exact signed bytes, the first failure wins."""

from collections.abc import Sequence
from typing import NamedTuple

from . import profile
from .artifact import ArtifactDigest
from .envelope import check_size, read_envelope
from .errors import (
    InvalidSignatureThresholdError,
    KeyIdCollisionError,
    NoTrustedKeysError,
    PayloadTypeMismatchError,
    SignatureThresholdNotMetError,
    SubjectDigestMismatchError,
    SubjectPolicyMismatchError,
    SubjectSizeMismatchError,
    TenantPolicyMismatchError,
    TooManyTrustedKeysError,
)
from .keys import PublicKey
from .pae import pae
from .statement import Statement, check_statement, read_statement
from .strictjson import Json


class Policy(NamedTuple):
    """What the verifier demands besides authenticity; None demands nothing."""

    signatures_required: int = 1
    tenant: str | None = None
    subject_name: str | None = None
    media_type: str | None = None


class Verified(NamedTuple):
    """What was signed, and by whom. Only `verify_envelope` makes one.

    It means authentic and well-formed, never that the job succeeded: read `outcome`, and
    `event_chain_complete`.
    """

    statement_bytes: bytes
    """Exactly the bytes under the signatures; never written anew."""
    statement: Statement
    key_ids: tuple[str, ...]
    """Sorted ids of the keys that admitted it; checking stops at the threshold."""

    def __repr__(self) -> str:
        return f"Verified(statement={self.statement!r}, key_ids={self.key_ids!r})"

    @property
    def execution_id(self) -> str:
        return self.statement.predicate.execution_id

    @property
    def tenant(self) -> str:
        return self.statement.predicate.tenant

    @property
    def subject_name(self) -> str:
        return self.statement.predicate.result.name

    @property
    def media_type(self) -> str:
        return self.statement.predicate.result.media_type

    @property
    def artifact(self) -> ArtifactDigest:
        result = self.statement.predicate.result
        return ArtifactDigest(result.sha256, result.size_bytes)

    @property
    def receipt(self) -> dict[str, Json]:
        return self.statement.receipt

    @property
    def outcome(self) -> str:
        return self.statement.outcome

    @property
    def event_chain_complete(self) -> bool:
        return self.statement.event_chain_complete


def verify_envelope(
    envelope: bytes,
    *,
    artifact: bytes | ArtifactDigest,
    keys: Sequence[PublicKey],
    policy: Policy = Policy(),  # noqa: B008 - an immutable value
) -> Verified:
    """Verify an envelope against an artifact and pinned keys, or raise the first failure.

    The order is part of the contract: nothing of the payload is parsed before enough signatures
    over it have verified. The envelope is parsed once and the payload once.
    """
    expected = artifact if isinstance(artifact, ArtifactDigest) else ArtifactDigest.of(artifact)
    check_size(envelope)
    trusted = _distinct(keys)
    required = policy.signatures_required
    if not 1 <= required <= len(trusted):
        raise InvalidSignatureThresholdError(required=required, available=len(trusted))
    decoded = read_envelope(envelope)
    decoded.check_shape()
    payload = decoded.decoded_payload()
    message = pae(decoded.payload_type, payload)
    admitted = _admitting(decoded.decoded_signatures(), message, trusted, required)
    if len(admitted) < required:
        raise SignatureThresholdNotMetError(required=required, verified=len(admitted))
    if decoded.payload_type != profile.PAYLOAD_TYPE:
        raise PayloadTypeMismatchError
    statement = read_statement(payload)
    check_statement(statement)
    verified = Verified(payload, statement, tuple(sorted(admitted)))
    _check_artifact(verified, expected)
    _check_policy(verified, policy)
    return verified


def _distinct(keys: Sequence[PublicKey]) -> dict[str, PublicKey]:
    if not keys:
        raise NoTrustedKeysError
    if len(keys) > profile.TRUSTED_KEYS_MAX:
        raise TooManyTrustedKeysError(max=profile.TRUSTED_KEYS_MAX)
    distinct: dict[str, PublicKey] = {}
    for key in keys:
        if distinct.setdefault(key.key_id, key) != key:
            raise KeyIdCollisionError
    return distinct


def _admitting(
    signatures: Sequence[tuple[str, bytes]],
    message: bytes,
    trusted: dict[str, PublicKey],
    required: int,
) -> set[str]:
    """Return the ids of keys with a valid entry; keys count, not entries."""
    admitted: set[str] = set()
    for hint, signature in signatures:
        # False sorts first: the hinted key is tried before the others, and all of them are tried.
        for key_id in sorted(trusted, key=lambda known: known != hint):
            if trusted[key_id].verifies(signature, message):
                admitted.add(key_id)
                break
        if len(admitted) >= required:
            break
    return admitted


def _check_artifact(verified: Verified, expected: ArtifactDigest) -> None:
    if verified.artifact.sha256 != expected.sha256:
        raise SubjectDigestMismatchError
    if verified.artifact.size_bytes != expected.size_bytes:
        raise SubjectSizeMismatchError


def _check_policy(verified: Verified, policy: Policy) -> None:
    if policy.tenant is not None and policy.tenant != verified.tenant:
        raise TenantPolicyMismatchError
    if policy.subject_name is not None and policy.subject_name != verified.subject_name:
        raise SubjectPolicyMismatchError(field="name")
    if policy.media_type is not None and policy.media_type != verified.media_type:
        raise SubjectPolicyMismatchError(field="media type")
