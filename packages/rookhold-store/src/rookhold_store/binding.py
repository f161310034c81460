"""The test that an attestation belongs to its job, as the store needs it from outside."""

from __future__ import annotations

from typing import Protocol


class BindingCheck(Protocol):
    """Whether envelope and artifact bind job, tenant and receipt: structure, not signatures."""

    def __call__(
        self,
        *,
        envelope: bytes,
        artifact: bytes,
        job_id: str,
        tenant: str,
        receipt_sha256: str,
        result_sha256: str,
        media_type: str,
    ) -> bool: ...
