"""Profile v1 as data: identities that are never renamed, and limits that bound every input.

The `coop` spellings are part of the wire format shared with other implementations. Changing one
would make every envelope ever written unverifiable.
"""

from typing import Final

PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = (
    "https://github.com/sambai-dev/coop/blob/main/crates/coop-attestation/FORMAT.md#predicate-v1"
)
SCHEMA_VERSION: Final = 1
RESULT_MEDIA_TYPE: Final = "application/vnd.coop.execution-result.v1+json"
RESULT_TYPE: Final = (
    "https://github.com/sambai-dev/coop/blob/main/docs/api.md#execution-result-artifact-v1"
)
ENVELOPE_MEDIA_TYPE: Final = "application/vnd.dsse.envelope.v1+json"
ALGORITHM: Final = "Ed25519"
ENVELOPE_FORMAT: Final = "DSSE/in-toto Statement v1"
PROFILE_VERSION: Final = 1
"""Recorded with a permanent signing failure; a newer number makes such jobs due again."""

ENVELOPE_BYTES_MAX: Final = 2_097_152
STATEMENT_BYTES_MAX: Final = 1_048_576
ARTIFACT_BYTES_MAX: Final = 16_777_216
KEY_FILE_BYTES_MAX: Final = 16_384
SIGNATURES_MAX: Final = 32
TRUSTED_KEYS_MAX: Final = 16
SIGNATURE_BYTES: Final = 64

PAYLOAD_TYPE_BYTES_MAX: Final = 255
EXECUTION_ID_CHARS_MAX: Final = 256
TENANT_CHARS_MAX: Final = 128
NAME_CHARS_MAX: Final = 1_024
MEDIA_TYPE_CHARS_MAX: Final = 255
KEY_ID_HINT_BYTES_MAX: Final = 256

RECEIPT_DEPTH_MAX: Final = 64
RECEIPT_NODES_MAX: Final = 65_536
RECEIPT_ESTIMATED_BYTES_MAX: Final = 786_432
JSON_NESTING_MAX: Final = 127

SAFE_INTEGER_MAX: Final = 2**53 - 1
U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1
I64_MIN: Final = -(2**63)

TERMINAL_STATUSES: Final = frozenset(
    {"succeeded", "failed", "timed_out", "oom_killed", "cancelled", "error"}
)

ENVELOPE_DOCUMENT: Final = "DSSE envelope"
STATEMENT_DOCUMENT: Final = "in-toto statement"
RECEIPT_DOCUMENT: Final = "Rookhold receipt"
ARTIFACT_DOCUMENT: Final = "result artifact"


def result_subject_name(job_id: str) -> str:
    """Return the subject name this producer writes; a verifier takes any name from its policy."""
    return f"coop://jobs/{job_id}/result"
