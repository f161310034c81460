import hashlib
import json
from typing import Any

import pytest

from rookhold_attestation import ArtifactDigest, AttestationError, build_result_artifact, profile


def build(**changes: Any) -> bytes:
    facts = {
        "job_id": "job",
        "tenant": "t",
        "receipt_sha256": "ab" * 32,
        "status": "succeeded",
        "exit_code": 0,
        "created_at_ms": 1,
        "started_at_ms": 2,
        "finished_at_ms": 5,
        "stdout": "é\n",
        "stderr": "",
        "truncated": False,
        "violations": [{"rule": "x", "detail": {"b": 1, "a": 2}}],
    }
    return build_result_artifact(**{**facts, **changes})


def code_of(**changes: Any) -> str:
    with pytest.raises(AttestationError) as caught:
        build(**changes)
    return caught.value.code


def test_the_artifact_is_canonical_json_that_begins_with_its_type() -> None:
    assert build().decode() == (
        f'{{"_type":"{profile.RESULT_TYPE}","created_at_ms":1,"duration_ms":3,"exit_code":0,'
        '"finished_at_ms":5,"job_id":"job","receipt_sha256":"' + "ab" * 32 + '","schema_version":1,'
        '"started_at_ms":2,"status":"succeeded","stderr":"","stdout":"é\\n","tenant":"t",'
        '"truncated":false,"violations":[{"detail":{"a":2,"b":1},"rule":"x"}]}'
    )


def test_building_it_twice_gives_the_same_bytes() -> None:
    assert build() == build()
    assert build(violations=[]) == build(violations=())


def test_a_job_that_never_started_writes_nulls() -> None:
    members = json.loads(build(started_at_ms=None, exit_code=None, status="cancelled"))
    assert (members["started_at_ms"], members["duration_ms"], members["exit_code"]) == (None,) * 3


def test_base64_is_a_member_only_when_the_text_is_not_exact() -> None:
    assert "stdout_base64" not in json.loads(build())
    members = json.loads(build(stdout="\ufffd", stdout_base64="/w=="))
    assert members["stdout_base64"] == "/w=="
    assert "stderr_base64" not in members
    assert json.loads(build(stderr_base64=""))["stderr_base64"] == ""


def test_two_full_streams_at_their_worst_still_fit() -> None:
    import base64

    # The longest a byte can become: a control that is escaped to six, and again as base64.
    raw = b"\x01" * 1_048_576
    text, encoded = raw.decode(), base64.b64encode(raw).decode()
    artifact = build(stdout=text, stderr=text, stdout_base64=encoded, stderr_base64=encoded)
    assert 15_000_000 < len(artifact) < 15_400_000


def test_an_artifact_over_sixteen_mebibytes_is_refused() -> None:
    empty = len(build(stdout=""))
    assert len(build(stdout="a" * (16_777_216 - empty))) == 16_777_216
    assert code_of(stdout="a" * (16_777_217 - empty)) == "artifact_too_large"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"exit_code": 2**53}, "number_out_of_range"),
        ({"created_at_ms": 1.5}, "number_out_of_range"),
        ({"violations": [{"n": 0.5}]}, "number_out_of_range"),
        ({"stdout": "\ud800"}, "json_encoding"),
        ({"violations": [{"x": b"bytes"}]}, "json_encoding"),
        ({"violations": [{1: 2}]}, "json_encoding"),
    ],
)
def test_what_is_never_signed_is_refused(changes: dict[str, Any], code: str) -> None:
    assert code_of(**changes) == code


def test_a_digest_is_that_of_the_bytes_and_bounded() -> None:
    assert ArtifactDigest.of(b"abc") == ArtifactDigest(hashlib.sha256(b"abc").hexdigest(), 3)
    with pytest.raises(AttestationError) as caught:
        ArtifactDigest.of(bytes(16_777_217))
    assert caught.value.code == "subject_artifact_too_large"
    with pytest.raises(AttestationError) as caught:
        ArtifactDigest.known("AB" * 32, 1)
    assert caught.value.detail == {"field": "result.sha256"}
