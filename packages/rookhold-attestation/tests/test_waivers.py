import pytest

from rookhold_attestation import AttestationError, waiver_code
from rookhold_attestation.errors import (
    ArtifactTooLargeError,
    EnvelopeTooLargeError,
    FileIoError,
    InvalidJsonError,
    InvalidProfileFieldError,
    NumberOutOfRangeError,
    ReceiptTooComplexError,
    StatementTooLargeError,
    TenantPolicyMismatchError,
)
from rookhold_attestation.waivers import WAIVER_CODES


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ArtifactTooLargeError(max_bytes=1), "artifact_too_large"),
        (StatementTooLargeError(max_bytes=1), "statement_too_large"),
        (EnvelopeTooLargeError(max_bytes=1), "envelope_too_large"),
        (ReceiptTooComplexError(max_nodes=1, max_bytes=1), "receipt_too_complex"),
        (InvalidProfileFieldError(field="predicate.receipt.depth"), "receipt_too_complex"),
        (NumberOutOfRangeError(), "number_out_of_range"),
        (
            InvalidProfileFieldError(field="predicate.receipt.event_chain.head"),
            "chain_head_missing",
        ),
        (
            InvalidProfileFieldError(field="predicate.receipt.receipt_sha256"),
            "receipt_digest_mismatch",
        ),
        (InvalidProfileFieldError(field="predicate.receipt.outcome"), "receipt_invalid"),
        (InvalidJsonError(document="d", line=1, column=1, reason="r"), "receipt_invalid"),
    ],
)
def test_a_failure_of_the_stored_bytes_is_permanent(error: AttestationError, code: str) -> None:
    assert waiver_code(error) == code


@pytest.mark.parametrize("error", [FileIoError(kind="k", reason="r"), TenantPolicyMismatchError()])
def test_any_other_failure_is_worth_another_attempt(error: AttestationError) -> None:
    assert waiver_code(error) is None


def test_the_codes_are_those_of_the_contract() -> None:
    assert {
        "artifact_too_large",
        "statement_too_large",
        "envelope_too_large",
        "receipt_too_complex",
        "number_out_of_range",
        "chain_head_missing",
        "receipt_digest_mismatch",
        "receipt_invalid",
    } == WAIVER_CODES
