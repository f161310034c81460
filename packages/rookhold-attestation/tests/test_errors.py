import inspect
import re
import string
from pathlib import Path

from rookhold_attestation import errors
from rookhold_attestation.errors import AttestationError

CLASSES = [
    member
    for _, member in inspect.getmembers(errors, inspect.isclass)
    if issubclass(member, AttestationError) and member is not AttestationError
]
CODES = (
    "envelope_too_large statement_too_large subject_artifact_too_large receipt_too_complex "
    "unsafe_input_file_type artifact_too_large invalid_json json_encoding invalid_base64 "
    "invalid_signature_length no_signatures too_many_signatures no_signing_keys "
    "duplicate_signing_key key_id_collision no_trusted_keys too_many_trusted_keys "
    "invalid_signature_threshold signature_threshold_not_met payload_type_mismatch "
    "statement_type_mismatch predicate_type_mismatch predicate_schema_version_mismatch "
    "invalid_profile_field number_out_of_range subject_descriptor_mismatch "
    "subject_digest_mismatch subject_size_mismatch subject_policy_mismatch "
    "tenant_policy_mismatch randomness_unavailable invalid_key_encoding unsafe_key_file_type "
    "key_file_too_large unsafe_key_file_permissions unsafe_key_file_owner "
    "key_file_already_exists io"
)


def test_there_is_one_class_for_each_code_of_the_contract() -> None:
    assert sorted(member.code for member in CLASSES) == sorted(CODES.split())


def test_every_message_is_one_line_made_of_its_detail() -> None:
    for member in CLASSES:
        names = [name for _, name, _, _ in string.Formatter().parse(member.words) if name]
        error = member(**{name: f"<{name}>" for name in names})
        assert error.detail.keys() == set(names)
        assert "\n" not in str(error)
        assert all(f"<{name}>" in str(error) for name in names)


def test_every_code_is_explained_in_the_docs_and_no_other() -> None:
    page = (Path(__file__).parents[3] / "docs/errors.md").read_text("utf-8")
    section = page.partition("\n## rookhold-attestation\n")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^### `([^`]+)`$", section, re.MULTILINE)) == sorted(CODES.split())
