"""The result artifact: the exact bytes of a job's result that the attestation's digest covers."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from . import profile
from .canonical import canonical, refuse_unsafe_numbers
from .errors import ArtifactTooLargeError, SubjectArtifactTooLargeError
from .fields import check_sha256


class ArtifactDigest(NamedTuple):
    """What a verifier must know about an artifact: its SHA-256 and its size."""

    sha256: str
    size_bytes: int

    @classmethod
    def of(cls, artifact: bytes) -> "ArtifactDigest":
        if len(artifact) > profile.ARTIFACT_BYTES_MAX:
            raise SubjectArtifactTooLargeError(max_bytes=profile.ARTIFACT_BYTES_MAX)
        return cls(hashlib.sha256(artifact).hexdigest(), len(artifact))

    @classmethod
    def known(cls, sha256: str, size_bytes: int) -> "ArtifactDigest":
        """Take a digest that the caller computed; only its form is checked."""
        check_sha256(sha256, "result.sha256")
        return cls(sha256, size_bytes)


def build_result_artifact(
    *,
    job_id: str,
    tenant: str,
    receipt_sha256: str,
    status: str,
    exit_code: int | None,
    created_at_ms: int,
    started_at_ms: int | None,
    finished_at_ms: int,
    stdout: str,
    stderr: str,
    truncated: bool,
    violations: Sequence[Mapping[str, object]],
    stdout_base64: str | None = None,
    stderr_base64: str | None = None,
) -> bytes:
    """Return canonical JSON without a final newline; the same facts give the same bytes.

    The base64 members are present only when given: when the text of that stream is not exact.
    Contents of output files are not part of it; the receipt binds their digests.
    """
    members: dict[str, object] = {
        "_type": profile.RESULT_TYPE,
        "schema_version": 1,
        "job_id": job_id,
        "tenant": tenant,
        "receipt_sha256": receipt_sha256,
        "status": status,
        "exit_code": exit_code,
        "created_at_ms": created_at_ms,
        "started_at_ms": started_at_ms,
        "finished_at_ms": finished_at_ms,
        "duration_ms": None if started_at_ms is None else finished_at_ms - started_at_ms,
        "stdout": stdout,
        "stderr": stderr,
        "truncated": truncated,
        "violations": list(violations),
    }
    if stdout_base64 is not None:
        members["stdout_base64"] = stdout_base64
    if stderr_base64 is not None:
        members["stderr_base64"] = stderr_base64
    refuse_unsafe_numbers(members)
    artifact = canonical(members, profile.ARTIFACT_DOCUMENT)
    if len(artifact) > profile.ARTIFACT_BYTES_MAX:
        raise ArtifactTooLargeError(max_bytes=profile.ARTIFACT_BYTES_MAX)
    return artifact
