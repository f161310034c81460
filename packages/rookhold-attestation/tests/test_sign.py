import json

import pytest

from rookhold_attestation import (
    AttestationError,
    PrivateKey,
    build_statement,
    profile,
    sign_result,
    sign_statement,
    verify_envelope,
)
from rookhold_attestation.testing import sample_evidence, sample_key, sample_receipt, sealed


def code_of(statement: bytes, keys: list[PrivateKey]) -> str:
    with pytest.raises(AttestationError) as caught:
        sign_statement(statement, keys)
    return caught.value.code


def test_signing_twice_gives_the_same_bytes() -> None:
    assert sample_evidence().envelope == sample_evidence().envelope


def test_several_signatures_are_sorted_by_key_id_and_all_verify() -> None:
    statement, artifact = sample_evidence().statement, sample_evidence().artifact
    keys = [sample_key(number) for number in range(1, 6)]
    envelope = sign_statement(statement, keys)
    ids = [entry["keyid"] for entry in json.loads(envelope)["signatures"]]
    assert ids == sorted(key.key_id for key in keys)
    for key in keys:
        verify_envelope(envelope, artifact=artifact, keys=[key.public_key])


def test_signing_key_rules_have_their_own_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    statement = sample_evidence().statement
    assert code_of(statement, []) == "no_signing_keys"
    assert code_of(statement, [sample_key(1)] * 33) == "too_many_signatures"
    assert code_of(statement, [sample_key(1), sample_key(1)]) == "duplicate_signing_key"
    sign_statement(statement, [sample_key(number) for number in range(32)])
    monkeypatch.setattr(PrivateKey, "key_id", "sha256:same")
    assert code_of(statement, [sample_key(1), sample_key(2)]) == "key_id_collision"


def test_an_unsound_statement_is_not_signed() -> None:
    good = sample_evidence().statement
    key = [sample_key()]
    assert code_of(b"", key) == "invalid_json"
    assert code_of(good[:-1], key) == "invalid_json"
    assert code_of(good.replace(b"Statement/v1", b"Statement/v2"), key) == "statement_type_mismatch"
    assert code_of(good.replace(b"succeeded", b"failed"), key) == "invalid_profile_field"
    assert code_of(b" " * 1_048_577, key) == "statement_too_large"


def test_a_number_that_is_never_signed_is_refused_in_a_ready_made_statement() -> None:
    statement = json.loads(sample_evidence().statement)
    statement["predicate"]["receipt"] = sealed(sample_receipt(ratio=0.5))
    assert code_of(json.dumps(statement).encode(), [sample_key()]) == "number_out_of_range"


def test_a_pretty_printed_statement_is_signed_exactly_as_it_is() -> None:
    evidence = sample_evidence()
    pretty = json.dumps(json.loads(evidence.statement), indent=2).encode()
    envelope = sign_statement(pretty, [evidence.key])
    verified = verify_envelope(envelope, artifact=evidence.artifact, keys=[evidence.key.public_key])
    assert verified.statement_bytes == pretty


def test_the_published_vector_is_reproduced_byte_for_byte() -> None:
    """Source: deterministic v1 vector of the profile's first implementation (public test key).

    Ed25519 is deterministic: equal signatures mean equal statement bytes.
    """
    job_id = "0191f8cf-57ef-7c14-a736-9b4b933eb84a"
    artifact = b'{"exit_code":0,"status":"succeeded","stdout":"42\\n","tenant":"tenant-vector"}\n'
    receipt = {
        "version": 1,
        "job_id": job_id,
        "outcome": "succeeded",
        "receipt_sha256": "700257184d9c8483dd82ebe6e2e0280c90a8d7274ad3aab51c885701f7240345",
        "event_chain": {
            "version": 1,
            "head": "4b5adf2fe8da9c90f6e0f4fcdf8f6f43f49ffaf2bd84cc84343320fbc3971e7e",
            "events": 4,
            "complete": True,
        },
    }
    statement = build_statement(
        execution_id=job_id,
        tenant="tenant-vector",
        subject_name=f"urn:coop:result:{job_id}",
        media_type=profile.RESULT_MEDIA_TYPE,
        artifact=artifact,
        receipt_json=json.dumps(receipt).encode(),
    )
    key = PrivateKey(bytes(range(32)))
    envelope = sign_statement(statement, [key])
    assert json.loads(envelope)["signatures"] == [
        {
            "keyid": "sha256:56475aa75463474c0285df5dbf2bcab73da651358839e9b77481b2eab107708c",
            "sig": "aNzd45yKhnd7KspF/wzhlCYgUVqbES1Fr2RndBUU2kIp5PwBaUSgsTB95qigpJrnP7OdIg/Q1rMG"
            "LJCiYIrVBg==",
        }
    ]
    verified = verify_envelope(envelope, artifact=artifact, keys=[key.public_key])
    assert (verified.tenant, verified.outcome) == ("tenant-vector", "succeeded")


def test_building_and_signing_in_one_gives_the_same_envelope_and_the_same_refusals() -> None:
    evidence = sample_evidence()
    predicate = json.loads(evidence.statement)["predicate"]
    parts = {
        "execution_id": predicate["executionId"],
        "tenant": predicate["tenant"],
        "subject_name": predicate["result"]["name"],
        "media_type": predicate["result"]["mediaType"],
        "artifact": evidence.artifact,
        "receipt_json": json.dumps(predicate["receipt"]).encode(),
    }
    keys = [sample_key()]
    assert sign_result(**parts, keys=keys) == sign_statement(build_statement(**parts), keys)
    for changes, code in [
        ({"execution_id": "another"}, "invalid_profile_field"),
        ({"media_type": "none"}, "invalid_profile_field"),
        ({"receipt_json": b"{}"}, "invalid_profile_field"),
        ({"receipt_json": b'{"version": 1.5}'}, "number_out_of_range"),
        ({"receipt_json": b"[1, 2"}, "invalid_json"),
    ]:
        with pytest.raises(AttestationError) as built:
            build_statement(**parts | changes)
        with pytest.raises(AttestationError) as signed:
            sign_result(**parts | changes, keys=keys)
        assert signed.value.code == built.value.code == code
