"""What a receipt says of the request: limits, requirements and digests, never the content."""

import binascii
import hashlib
from typing import Any

from rookhold_types.jobs import JobSpec
from rookhold_types.receipts import FileDigest, OutputEvidence
from rookhold_types.wire import plain


def requested_members(spec: JobSpec) -> dict[str, Any]:
    """Return them for a stored spec, also one that would be refused today.

    `input_files` is left out if one of them is not base64: what is not known is not said.
    """
    members: dict[str, Any] = {
        "requested_limits": plain(spec.limits),
        "requirements": plain(spec.requirements),
        "code_sha256": _sha256(spec.code.encode()),
        "stdin_sha256": _sha256((spec.stdin or "").encode()),
    }
    try:
        members["input_files"] = [
            _digest(file.path, binascii.a2b_base64(file.content_base64, strict_mode=True))
            for file in spec.files
        ]
    except ValueError:
        return members
    return members


def unrun_members(spec: JobSpec, killed_by: str | None) -> dict[str, Any]:
    """Return what a receipt says of a job that no executor was asked to run: all is known."""
    nothing = OutputEvidence(
        stdout_bytes=0, stderr_bytes=0, stdout_sha256=_sha256(b""), stderr_sha256=_sha256(b"")
    )
    return {
        "killed_by": killed_by,
        "evidence_complete": True,
        **requested_members(spec),
        "resource_usage": None,
        "executor_output": None,
        "output": plain(nothing),
        "artifacts": [],
    }


def _digest(path: str, content: bytes) -> dict[str, Any]:
    return plain(FileDigest(path=path, size_bytes=len(content), sha256=_sha256(content)))


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
