"""Every refusal of this wheel: one class per stable code, all under `AttestationError`.

A message is built from the class's own words and its detail, so that it can hold neither content
of a document nor key material: there is no way to pass free text.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as typing's, which asking for help does not need
if TYPE_CHECKING:
    from typing import ClassVar


class AttestationError(Exception):
    """Root of every error raised on purpose; always raised as a subclass."""

    code: ClassVar[str] = "attestation"
    retryable: ClassVar[bool] = False
    words: ClassVar[str] = "attestation failed"

    def __init__(self, **detail: str | int) -> None:
        super().__init__(self.words.format(**detail))
        self.detail = detail


# Size and shape


class EnvelopeTooLargeError(AttestationError):
    code = "envelope_too_large"
    words = "the envelope is larger than {max_bytes} bytes"


class StatementTooLargeError(AttestationError):
    code = "statement_too_large"
    words = "the statement is larger than {max_bytes} bytes"


class ArtifactTooLargeError(AttestationError):
    """The result artifact of a job cannot be built within the profile's limit."""

    code = "artifact_too_large"
    words = "the result artifact is larger than {max_bytes} bytes"


class SubjectArtifactTooLargeError(AttestationError):
    """The artifact handed to the verifier is over the profile's limit."""

    code = "subject_artifact_too_large"
    words = "the subject is larger than {max_bytes} bytes"


class ReceiptTooComplexError(AttestationError):
    code = "receipt_too_complex"
    words = "the receipt has over {max_nodes} nodes or an estimated size over {max_bytes} bytes"


class UnsafeInputFileTypeError(AttestationError):
    code = "unsafe_input_file_type"
    words = "an input is not a regular file, or is a symbolic link"


# Encoding


class InvalidJsonError(AttestationError):
    """`reason` names the rule that was broken, never what was read."""

    code = "invalid_json"
    words = "the {document} is refused as JSON at line {line}, column {column}: {reason}"


class JsonEncodingError(AttestationError):
    """A value cannot be written: it holds a lone surrogate or a type that JSON lacks."""

    code = "json_encoding"
    words = "the {document} holds a value that cannot be written as JSON"


class InvalidBase64Error(AttestationError):
    """`reason` tells missing padding from a wrong character, mixed alphabets and stray bits."""

    code = "invalid_base64"
    words = "the {field} is not acceptable base64: {reason}"


class InvalidSignatureLengthError(AttestationError):
    code = "invalid_signature_length"
    words = "a signature is not 64 bytes long"


# Signatures


class NoSignaturesError(AttestationError):
    code = "no_signatures"
    words = "the envelope has no signatures"


class TooManySignaturesError(AttestationError):
    code = "too_many_signatures"
    words = "more than {max} signatures were asked for"


class NoSigningKeysError(AttestationError):
    code = "no_signing_keys"
    words = "no signing key was given"


class DuplicateSigningKeyError(AttestationError):
    code = "duplicate_signing_key"
    words = "a signing key was given twice"


class KeyIdCollisionError(AttestationError):
    code = "key_id_collision"
    words = "two different keys have one key id"


class NoTrustedKeysError(AttestationError):
    code = "no_trusted_keys"
    words = "no trusted public key was given"


class TooManyTrustedKeysError(AttestationError):
    code = "too_many_trusted_keys"
    words = "more than {max} trusted public keys were given"


class InvalidSignatureThresholdError(AttestationError):
    code = "invalid_signature_threshold"
    words = "{required} signatures are required and {available} distinct keys are trusted"


class SignatureThresholdNotMetError(AttestationError):
    code = "signature_threshold_not_met"
    words = "{verified} of {required} required trusted signatures verified"


# Profile


class PayloadTypeMismatchError(AttestationError):
    code = "payload_type_mismatch"
    words = "the signed payload is not an in-toto statement"


class StatementTypeMismatchError(AttestationError):
    code = "statement_type_mismatch"
    words = "the statement type is not in-toto Statement v1"


class PredicateTypeMismatchError(AttestationError):
    code = "predicate_type_mismatch"
    words = "the predicate type is not the execution predicate v1"


class PredicateSchemaVersionMismatchError(AttestationError):
    code = "predicate_schema_version_mismatch"
    words = "the predicate's schema version is not 1"


class InvalidProfileFieldError(AttestationError):
    code = "invalid_profile_field"
    words = "{field} breaks a rule of the profile"


class NumberOutOfRangeError(AttestationError):
    """Signing only: what is signed holds integers within plus or minus 2^53-1 and nothing else."""

    code = "number_out_of_range"
    words = "a number to be signed is not an integer within plus or minus 2^53-1"


# Subject and policy


class SubjectDescriptorMismatchError(AttestationError):
    code = "subject_descriptor_mismatch"
    words = "the statement's subject and its result disagree"


class SubjectDigestMismatchError(AttestationError):
    code = "subject_digest_mismatch"
    words = "the artifact is not the one that was signed: its SHA-256 differs"


class SubjectSizeMismatchError(AttestationError):
    code = "subject_size_mismatch"
    words = "the artifact's size differs from the signed one"


class SubjectPolicyMismatchError(AttestationError):
    code = "subject_policy_mismatch"
    words = "the signed subject {field} is not the required one"


class TenantPolicyMismatchError(AttestationError):
    code = "tenant_policy_mismatch"
    words = "the signed tenant is not the required one"


# Keys and files


class RandomnessUnavailableError(AttestationError):
    code = "randomness_unavailable"
    retryable = True
    words = "the operating system gave no randomness"


class InvalidKeyEncodingError(AttestationError):
    code = "invalid_key_encoding"
    words = "the {kind} key is not canonical {format}, or is a weak key"


class UnsafeKeyFileTypeError(AttestationError):
    """Not a regular file, a symbolic link, or a path that goes through `..` or a non-directory."""

    code = "unsafe_key_file_type"
    words = "the {kind} key path must go straight to a regular file: no link, no step to a parent"


class KeyFileTooLargeError(AttestationError):
    code = "key_file_too_large"
    words = "the {kind} key file is larger than {max_bytes} bytes"


class UnsafeKeyFilePermissionsError(AttestationError):
    code = "unsafe_key_file_permissions"
    words = "the {kind} key file, or a directory above it, is open to others"


class UnsafeKeyFileOwnerError(AttestationError):
    code = "unsafe_key_file_owner"
    words = "the {kind} key file, or a directory above it, belongs to somebody else"


class KeyFileAlreadyExistsError(AttestationError):
    code = "key_file_already_exists"
    words = "the key file exists already and is never overwritten"


class FileIoError(AttestationError):
    """The operating system refused; `reason` is its own description, without the path."""

    code = "io"
    retryable = True
    words = "the {kind} cannot be read or written: {reason}"

    @classmethod
    def of(cls, kind: str, cause: Exception) -> FileIoError:
        """Describe an OSError, or the ValueError of a path that no file can have."""
        number = cause.errno if isinstance(cause, OSError) else None
        return cls(kind=kind, reason="invalid path" if number is None else os.strerror(number))
