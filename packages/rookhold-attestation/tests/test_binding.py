import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from rookhold_attestation import binds, profile
from rookhold_attestation.testing import JOB_ID, TENANT, sample_evidence, sample_key, sign_anything

EVIDENCE = sample_evidence()
RECEIPT_SHA256 = json.loads(EVIDENCE.receipt_json)["receipt_sha256"]


def bound(**changes: Any) -> bool:
    arguments = {
        "envelope": EVIDENCE.envelope,
        "artifact": EVIDENCE.artifact,
        "job_id": JOB_ID,
        "tenant": TENANT,
        "receipt_sha256": RECEIPT_SHA256,
        "result_sha256": hashlib.sha256(EVIDENCE.artifact).hexdigest(),
        "media_type": profile.RESULT_MEDIA_TYPE,
    }
    return binds(**{**arguments, **changes})


def with_statement(edit: Callable[[dict[str, Any]], object]) -> bytes:
    statement = json.loads(EVIDENCE.statement)
    edit(statement)
    return sign_anything(json.dumps(statement).encode(), EVIDENCE.key)


def with_artifact(**members: object) -> dict[str, Any]:
    """Return a changed artifact together with an envelope and digest that do fit it."""
    artifact = json.dumps({**json.loads(EVIDENCE.artifact), **members}).encode()
    digest = hashlib.sha256(artifact).hexdigest()

    def edit(statement: dict[str, Any]) -> None:
        statement["subject"][0]["digest"]["sha256"] = digest
        statement["predicate"]["result"].update(sha256=digest, sizeBytes=len(artifact))

    return {"artifact": artifact, "envelope": with_statement(edit), "result_sha256": digest}


def test_what_was_built_together_binds_and_so_does_any_key() -> None:
    assert bound()
    assert bound(envelope=sample_evidence(sample_key(5)).envelope)
    assert bound(**with_artifact(later="member"))


def test_a_broken_signature_binds_because_this_is_no_signature_check() -> None:
    envelope = json.loads(EVIDENCE.envelope)
    envelope["signatures"][0]["sig"] = "AAAA"
    assert bound(envelope=json.dumps(envelope).encode())


def test_a_receipt_with_the_right_tenant_binds_and_with_another_does_not() -> None:
    def naming(tenant: str | None) -> bytes:
        return with_statement(lambda s: s["predicate"]["receipt"].update(tenant=tenant))

    assert bound(envelope=naming(TENANT))
    assert not bound(envelope=naming("x"))
    assert not bound(envelope=naming(None))


@pytest.mark.parametrize(
    "name", ["job_id", "tenant", "receipt_sha256", "result_sha256", "media_type"]
)
def test_another_expectation_does_not_bind(name: str) -> None:
    assert not bound(**{name: "other"})


@pytest.mark.parametrize(
    "members",
    [
        {"schema_version": 2},
        {"schema_version": 1.0},
        {"schema_version": True},
        {"job_id": "other"},
        {"tenant": "other"},
        {"tenant": None},
        {"receipt_sha256": "00" * 32},
    ],
)
def test_an_artifact_of_something_else_does_not_bind(members: dict[str, object]) -> None:
    assert not bound(**with_artifact(**members))


@pytest.mark.parametrize(
    "edit",
    [
        lambda s: s.update(_type="x"),
        lambda s: s.update(predicateType="x"),
        lambda s: s.update(subject=[]),
        lambda s: s["subject"].append(s["subject"][0]),
        lambda s: s["subject"][0].update(name="x"),
        lambda s: s["subject"][0].update(mediaType="x/y"),
        lambda s: s["subject"][0].update(digest={"sha512": "x"}),
        lambda s: s["subject"][0].update(digest={"sha256": "00" * 32}),
        lambda s: s["predicate"].update(schemaVersion=2),
        lambda s: s["predicate"].update(executionId="x"),
        lambda s: s["predicate"].update(tenant="x"),
        lambda s: s["predicate"].update(receipt=[]),
        lambda s: s["predicate"]["result"].update(name="x"),
        lambda s: s["predicate"]["result"].update(mediaType="x/y"),
        lambda s: s["predicate"]["result"].update(sizeBytes=1),
        lambda s: s["predicate"]["result"].update(sha256="00" * 32),
        lambda s: s["predicate"]["receipt"].update(job_id="x"),
        lambda s: s["predicate"]["receipt"].update(receipt_sha256="00" * 32),
        lambda s: s["predicate"].pop("receipt"),
    ],
    ids=range(19),
)
def test_a_statement_about_something_else_does_not_bind(
    edit: Callable[[dict[str, Any]], object],
) -> None:
    assert not bound(envelope=with_statement(edit))


@pytest.mark.parametrize(
    "changes",
    [
        {"envelope": b""},
        {"envelope": b"{}"},
        {"envelope": b"\xff"},
        {"envelope": b" " * 2_097_153},
        {"artifact": b""},
        {"artifact": EVIDENCE.artifact + b" "},
        {"artifact": b"[]", "result_sha256": hashlib.sha256(b"[]").hexdigest()},
        {"artifact": b"{", "result_sha256": hashlib.sha256(b"{").hexdigest()},
    ],
    ids=range(8),
)
def test_unreadable_bytes_do_not_bind_and_do_not_raise(changes: dict[str, Any]) -> None:
    assert not bound(**changes)


def test_an_envelope_of_another_type_or_without_signatures_does_not_bind() -> None:
    envelope = json.loads(EVIDENCE.envelope)
    assert not bound(envelope=json.dumps({**envelope, "payloadType": "x"}).encode())
    assert not bound(envelope=json.dumps({**envelope, "signatures": []}).encode())
    assert not bound(envelope=json.dumps({**envelope, "payload": "!"}).encode())
