from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from rookhold import Artifact
from rookhold.results import sha256
from rookhold_attestation import testing
from rookhold_attestation.canonical import canonical as their_canonical
from rookhold_cli import evidence
from rookhold_cli.errors import FilesError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def artifact(path: str, content: bytes = b"data") -> Artifact:
    return Artifact(path=path, content=content, size_bytes=len(content), sha256=sha256(content))


def test_a_new_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    evidence.make_folder(tmp_path / "a" / "b c")
    assert (tmp_path / "a" / "b c").is_dir()


def test_an_empty_folder_is_used(tmp_path: Path) -> None:
    evidence.make_folder(tmp_path)


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "receipt.json").touch()
    with pytest.raises(UsageError):
        evidence.make_folder(tmp_path)
    evidence.make_folder(tmp_path, ours=["receipt.json"])


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name in ("file", "link"):
        with pytest.raises(UsageError):
            evidence.make_folder(tmp_path / name)
    with pytest.raises(FilesError):
        evidence.make_folder(tmp_path / "file" / "below")


def test_the_receipt_is_spelt_as_the_signer_spells_it() -> None:
    receipt = testing.sample_receipt(note='ü " \\ / \x01\n\x7f \u2028', b=[1, None, True], a={})
    assert evidence.canonical(receipt) == their_canonical(receipt)


@pytest.mark.parametrize(
    "path",
    [
        "../x",
        "output/../x",
        "output//x",
        "output/.",
        "output",
        "/etc/x",
        "input/x",
        "output/a/../../x",
    ],
)
def test_an_output_file_cannot_leave_its_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(FilesError):
        evidence.put_output(tmp_path / "evidence", artifact(path))
    assert list(tmp_path.rglob("x")) == []


def test_an_output_file_keeps_its_path(tmp_path: Path) -> None:
    target = evidence.put_output(tmp_path, artifact("output/a b/c"))
    assert target == tmp_path / "output" / "a b" / "c"
    assert target.read_bytes() == b"data"


def test_a_link_in_the_place_of_a_file_is_replaced_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"mine")
    folder = tmp_path / "evidence"
    (folder / "output").mkdir(parents=True)
    (folder / "output" / "a").symlink_to(precious)
    evidence.put_output(folder, artifact("output/a"))
    assert precious.read_bytes() == b"mine"


def test_canonical_json_reads_back_the_same() -> None:
    receipt = testing.sample_receipt()
    assert json.loads(evidence.canonical(receipt)) == receipt
