"""Which signing failures are permanent, and the code that a waiver records for each.

Permanent means decided by the stored bytes alone: signing the same job again gives the same error.
"""

from types import MappingProxyType
from typing import Final

from .errors import (
    ArtifactTooLargeError,
    AttestationError,
    EnvelopeTooLargeError,
    InvalidJsonError,
    InvalidProfileFieldError,
    JsonEncodingError,
    NumberOutOfRangeError,
    ReceiptTooComplexError,
    StatementTooLargeError,
)

_BY_TYPE: Final = MappingProxyType(
    {
        ArtifactTooLargeError: "artifact_too_large",
        StatementTooLargeError: "statement_too_large",
        EnvelopeTooLargeError: "envelope_too_large",
        ReceiptTooComplexError: "receipt_too_complex",
        NumberOutOfRangeError: "number_out_of_range",
        InvalidJsonError: "receipt_invalid",
        JsonEncodingError: "receipt_invalid",
    }
)
_BY_FIELD: Final = MappingProxyType(
    {
        "predicate.receipt.depth": "receipt_too_complex",
        "predicate.receipt.receipt_sha256": "receipt_digest_mismatch",
        "predicate.receipt.event_chain.head": "chain_head_missing",
    }
)
WAIVER_CODES: Final = frozenset({*_BY_TYPE.values(), *_BY_FIELD.values()})


def waiver_code(error: AttestationError) -> str | None:
    """Return the code to record for a permanent failure, None for one worth another attempt."""
    if isinstance(error, InvalidProfileFieldError):
        return _BY_FIELD.get(str(error.detail["field"]), "receipt_invalid")
    return _BY_TYPE.get(type(error))
