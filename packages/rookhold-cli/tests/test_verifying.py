from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from rookhold_attestation import PublicKey, testing
from rookhold_cli import evidence, verifying
from rookhold_cli.errors import BadEvidenceError, FilesError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def folder_of(tmp_path: Path, **receipt_changes: Any) -> Path:
    """Write what `rookhold run` writes, from the attestation wheel's own sample."""
    sample = testing.sample_evidence(**receipt_changes)
    folder = tmp_path / "evidence"
    folder.mkdir()
    (folder / evidence.ENVELOPE).write_bytes(sample.envelope)
    (folder / evidence.RESULT).write_bytes(sample.artifact)
    (folder / evidence.RECEIPT).write_bytes(evidence.canonical(json.loads(sample.receipt_json)))
    (folder / evidence.PUBLIC_KEY).write_text(sample.key.public_key.to_pem(), "ascii")
    return folder


def with_output(tmp_path: Path) -> Path:
    digest = hashlib.sha256(b"data").hexdigest()
    named = [{"path": "output/a/b", "size_bytes": 4, "sha256": digest}]
    folder = folder_of(tmp_path, artifacts=named)
    (folder / "output" / "a").mkdir(parents=True)
    (folder / "output" / "a" / "b").write_bytes(b"data")
    return folder


def test_a_sound_folder_verifies_with_its_own_key(tmp_path: Path) -> None:
    found = verifying.verify_folder(folder_of(tmp_path))
    assert (found.execution_id, found.tenant) == (testing.JOB_ID, testing.TENANT)
    assert not found.tenant_checked
    assert found.compared == ("receipt.json",)


def test_a_sound_folder_verifies_with_a_pinned_key_and_tenant(tmp_path: Path) -> None:
    key = testing.sample_key().public_key
    found = verifying.verify_folder(folder_of(tmp_path), keys=[key], tenant=testing.TENANT)
    assert found.tenant_checked
    assert found.key_ids == (key.key_id,)


def test_a_pinned_key_outweighs_the_one_in_the_folder(tmp_path: Path) -> None:
    with pytest.raises(BadEvidenceError):
        verifying.verify_folder(folder_of(tmp_path), keys=[testing.sample_key(2).public_key])


def test_another_tenant_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadEvidenceError):
        verifying.verify_folder(folder_of(tmp_path), tenant="tenant-b")


@pytest.mark.parametrize("name", [evidence.RESULT, evidence.ENVELOPE, evidence.RECEIPT])
def test_a_changed_byte_is_refused(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path)
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content.replace(b"a", b"b", 1))
    with pytest.raises(BadEvidenceError):
        verifying.verify_folder(folder)


@pytest.mark.parametrize("spelt", ["1.0", "true", '"1"'])
def test_a_receipt_whose_numbers_are_spelt_otherwise_is_refused(tmp_path: Path, spelt: str) -> None:
    folder = folder_of(tmp_path)
    text = (folder / evidence.RECEIPT).read_text("utf-8")
    (folder / evidence.RECEIPT).write_text(
        text.replace('"version":1}', f'"version":{spelt}}}'), "utf-8"
    )
    with pytest.raises(BadEvidenceError):
        verifying.verify_folder(folder)


def test_a_receipt_that_repeats_a_member_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    text = (folder / evidence.RECEIPT).read_text("utf-8")
    (folder / evidence.RECEIPT).write_text('{"outcome":"failed",' + text[1:], "utf-8")
    with pytest.raises(BadEvidenceError):
        verifying.verify_folder(folder)


def test_output_files_are_compared_with_the_receipt(tmp_path: Path) -> None:
    found = verifying.verify_folder(with_output(tmp_path))
    assert found.compared == ("receipt.json", "output/a/b")


def test_a_signed_output_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = with_output(tmp_path)
    (folder / "output" / "a" / "b").unlink()
    found = verifying.verify_folder(folder)
    assert found.compared == ("receipt.json",)
    assert found.absent == ("output/a/b",)


def test_a_changed_output_file_is_refused(tmp_path: Path) -> None:
    folder = with_output(tmp_path)
    (folder / "output" / "a" / "b").write_bytes(b"dato")
    with pytest.raises(BadEvidenceError):
        verifying.verify_folder(folder)


def test_an_output_file_that_was_not_signed_is_refused(tmp_path: Path) -> None:
    folder = with_output(tmp_path)
    (folder / "output" / "extra").write_bytes(b"data")
    with pytest.raises(BadEvidenceError):
        verifying.verify_folder(folder)


@pytest.mark.parametrize("name", [evidence.RESULT, evidence.ENVELOPE, evidence.PUBLIC_KEY])
def test_a_missing_file_is_said_so(tmp_path: Path, name: str) -> None:
    folder = folder_of(tmp_path)
    (folder / name).unlink()
    with pytest.raises(FilesError):
        verifying.verify_folder(folder)


def test_the_folder_above_those_of_evidence_is_told_apart(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FilesError) as refused:
        verifying.verify_folder(tmp_path)
    assert str(refused.value).endswith(f"holds 1: name one, as {folder}, or each, as {tmp_path}/*")
    with pytest.raises(FilesError) as refused:
        verifying.verify_folder(tmp_path / "empty")
    assert "envelope.json is not there" in str(refused.value)


def test_a_link_is_no_evidence(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / evidence.RESULT).rename(tmp_path / "elsewhere")
    (folder / evidence.RESULT).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FilesError):
        verifying.verify_folder(folder)


def test_a_key_that_is_no_key_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    (folder / evidence.PUBLIC_KEY).write_bytes(b"\xff\xfe")
    with pytest.raises(BadEvidenceError):
        verifying.verify_folder(folder)
    with pytest.raises(UsageError):
        verifying.load_keys([folder / evidence.PUBLIC_KEY])


def test_a_trusted_key_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(FilesError):
        verifying.load_keys([tmp_path / "none.pem"])


def test_keys_are_loaded_from_files(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    assert verifying.load_keys([folder / evidence.PUBLIC_KEY]) == [
        PublicKey(testing.sample_key().public_key.raw)
    ]
