"""What a receipt says of a request, whoever ends the job."""

import base64
import hashlib

import msgspec
import pytest

from rookhold_types import (
    JobFile,
    JobSpec,
    KilledBy,
    Limits,
    Receipt,
    requested_members,
    unrun_members,
)

CONTENT = b"\x00what was given\xff"
SPEC = JobSpec(
    language="python",
    code="print('é')",
    limits=Limits(wall_seconds=2**32 - 1),
    files=(JobFile(path="input/a", content_base64=base64.b64encode(CONTENT).decode()),),
)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_the_request_is_told_unclamped_and_by_digests() -> None:
    members = requested_members(SPEC)
    assert members["requested_limits"]["wall_seconds"] == 2**32 - 1
    assert members["requirements"] == {"minimum_isolation": "none"}
    assert members["code_sha256"] == sha256("print('é')".encode())
    assert members["stdin_sha256"] == sha256(b"")
    assert members["input_files"] == [
        {"path": "input/a", "size_bytes": len(CONTENT), "sha256": sha256(CONTENT)}
    ]


def test_a_file_whose_path_is_refused_today_is_told_all_the_same() -> None:
    old = msgspec.structs.replace(SPEC.files[0], path="input/a/b")
    both = msgspec.structs.replace(SPEC, files=(*SPEC.files, old))
    assert [file["path"] for file in requested_members(both)["input_files"]] == [
        "input/a",
        "input/a/b",
    ]


@pytest.mark.parametrize("text", ["!", "AA", "é", "QQ==\n"])
def test_a_file_that_is_not_base64_leaves_the_files_untold(text: str) -> None:
    spec = msgspec.structs.replace(SPEC, files=(JobFile(path="input/a", content_base64=text),))
    assert "input_files" not in requested_members(spec)
    assert requested_members(spec)["code_sha256"] == sha256(SPEC.code.encode())


def test_a_job_that_never_ran_printed_nothing_and_left_nothing() -> None:
    members = unrun_members(SPEC, KilledBy.CANCELLED_BEFORE_START)
    assert members.items() >= requested_members(SPEC).items()
    read = msgspec.convert(members, Receipt)
    assert (read.killed_by, read.evidence_complete) == ("cancelled_before_start", True)
    assert (read.artifacts, read.executor_output, read.resource_usage) == ((), None, None)
    assert read.output is not None
    assert (read.output.stdout_bytes, read.output.stderr_sha256) == (0, sha256(b""))
    assert read.output.stdout_bytes_seen is None
