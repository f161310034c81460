import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from rookhold_attestation import AttestationError, build_statement, profile
from rookhold_attestation.statement import check_statement, read_statement
from rookhold_attestation.testing import JOB_ID, TENANT, sample_evidence, sample_receipt, sealed


def build(**changes: Any) -> bytes:
    arguments = {
        "execution_id": JOB_ID,
        "tenant": TENANT,
        "subject_name": "urn:x",
        "media_type": "a/b",
        "artifact": b"result",
        "receipt_json": json.dumps(sample_receipt()).encode(),
    }
    return build_statement(**{**arguments, **changes})


def code_of_build(**changes: Any) -> tuple[str, object]:
    with pytest.raises(AttestationError) as caught:
        build(**changes)
    return caught.value.code, caught.value.detail.get("field")


def edited(edit: Callable[[dict[str, Any]], object]) -> bytes:
    statement = json.loads(sample_evidence().statement)
    edit(statement)
    return json.dumps(statement).encode()


def code_of_check(edit: Callable[[dict[str, Any]], object]) -> tuple[str, object]:
    with pytest.raises(AttestationError) as caught:
        check_statement(read_statement(edited(edit)))
    return caught.value.code, caught.value.detail.get("field")


def test_the_producer_writes_compact_json_with_members_in_their_order() -> None:
    receipt = sample_receipt(z={"b": 1, "a": 2})
    reordered = dict(reversed(receipt.items()))
    written = build(receipt_json=json.dumps(reordered, indent=2).encode())
    digest = hashlib.sha256(b"result").hexdigest()
    canonical = json.dumps(receipt, sort_keys=True, separators=(",", ":"))
    assert written.decode() == (
        '{"_type":"https://in-toto.io/Statement/v1",'
        f'"subject":[{{"name":"urn:x","digest":{{"sha256":"{digest}"}},"mediaType":"a/b"}}],'
        f'"predicateType":"{profile.PREDICATE_TYPE}",'
        f'"predicate":{{"schemaVersion":1,"executionId":"{JOB_ID}","tenant":"{TENANT}",'
        f'"result":{{"name":"urn:x","mediaType":"a/b","sizeBytes":6,"sha256":"{digest}"}},'
        f'"receipt":{canonical}}}}}'
    )


def test_a_pretty_printed_statement_with_unknown_members_passes() -> None:
    def add(statement: dict[str, Any]) -> None:
        statement["extra"] = 1.5
        statement["subject"][0]["digest"]["sha512"] = "anything"
        statement["subject"][0]["annotations"] = {}
        statement["predicate"]["note"] = None
        statement["predicate"]["result"]["note"] = []

    check_statement(read_statement(edited(add)))
    check_statement(read_statement(json.dumps(json.loads(edited(add)), indent=3).encode()))


class Edit(NamedTuple):
    """Set one value of a statement, or remove it (`...`)."""

    path: tuple[Any, ...]
    value: Any

    def __call__(self, statement: dict[str, Any]) -> None:
        target: Any = statement
        for place in self.path[:-1]:
            target = target[place]
        if self.value is ...:
            del target[self.path[-1]]
        else:
            target[self.path[-1]] = self.value


def drop(*path: Any) -> Edit:
    return Edit(path, ...)


def put(value: object, *path: Any) -> Edit:
    return Edit(path, value)


SUBJECT = ("subject", 0)
PREDICATE = ("predicate",)
RESULT = ("predicate", "result")


@pytest.mark.parametrize(
    "edit",
    [
        drop("_type"),
        drop("subject"),
        drop("predicateType"),
        drop("predicate"),
        *(drop(*SUBJECT, name) for name in ("name", "digest", "mediaType")),
        *(drop(*PREDICATE, name) for name in ("schemaVersion", "executionId", "tenant")),
        *(drop(*PREDICATE, name) for name in ("result", "receipt")),
        *(drop(*RESULT, name) for name in ("name", "mediaType", "sizeBytes", "sha256")),
        put(1, "_type"),
        put({}, "subject"),
        put(["x"], "subject"),
        put(None, *SUBJECT, "mediaType"),
        put([], *SUBJECT, "digest"),
        put(5, *SUBJECT, "digest", "sha512"),
        put([], "predicate"),
        put(1.0, *PREDICATE, "schemaVersion"),
        put("1", *PREDICATE, "schemaVersion"),
        put(True, *PREDICATE, "schemaVersion"),
        put(2**32, *PREDICATE, "schemaVersion"),
        put(-1, *PREDICATE, "schemaVersion"),
        put(None, *PREDICATE, "tenant"),
        put(78.0, *RESULT, "sizeBytes"),
        put(-1, *RESULT, "sizeBytes"),
        put(2**64, *RESULT, "sizeBytes"),
        put("78", *RESULT, "sizeBytes"),
    ],
)
def test_missing_members_and_wrong_types_are_refused_as_json(edit: Edit) -> None:
    assert code_of_check(edit)[0] == "invalid_json"


@pytest.mark.parametrize(
    ("edit", "code", "field"),
    [
        (put("x", "_type"), "statement_type_mismatch", None),
        (put("x", "predicateType"), "predicate_type_mismatch", None),
        (put(2, *PREDICATE, "schemaVersion"), "predicate_schema_version_mismatch", None),
        (put(2**32 - 1, *PREDICATE, "schemaVersion"), "predicate_schema_version_mismatch", None),
        (put([], "subject"), "invalid_profile_field", "subject"),
        (put("", *PREDICATE, "executionId"), "invalid_profile_field", "predicate.execution_id"),
        (
            put("x" * 257, *PREDICATE, "executionId"),
            "invalid_profile_field",
            "predicate.execution_id",
        ),
        (put("", *PREDICATE, "tenant"), "invalid_profile_field", "predicate.tenant"),
        (put("x" * 129, *PREDICATE, "tenant"), "invalid_profile_field", "predicate.tenant"),
        (put("a\x7f", *PREDICATE, "tenant"), "invalid_profile_field", "predicate.tenant"),
        (put("a\x85", *PREDICATE, "tenant"), "invalid_profile_field", "predicate.tenant"),
        (put([], *PREDICATE, "receipt"), "invalid_profile_field", "predicate.receipt"),
        (put("", *SUBJECT, "name"), "invalid_profile_field", "subject.name"),
        (put("x" * 1025, *SUBJECT, "name"), "invalid_profile_field", "subject.name"),
        (put("text", *SUBJECT, "mediaType"), "invalid_profile_field", "media_type"),
        (put("a/", *SUBJECT, "mediaType"), "invalid_profile_field", "media_type"),
        (put("/b", *SUBJECT, "mediaType"), "invalid_profile_field", "media_type"),
        (put("a/b/c", *SUBJECT, "mediaType"), "invalid_profile_field", "media_type"),
        (put("a/b c", *SUBJECT, "mediaType"), "invalid_profile_field", "media_type"),
        (put("a/é", *SUBJECT, "mediaType"), "invalid_profile_field", "media_type"),
        (put("a/b\n", *SUBJECT, "mediaType"), "invalid_profile_field", "media_type"),
        (put("a/" + "b" * 254, *SUBJECT, "mediaType"), "invalid_profile_field", "media_type"),
        (drop(*SUBJECT, "digest", "sha256"), "invalid_profile_field", "subject.digest"),
        (
            put("AB" * 32, *SUBJECT, "digest", "sha256"),
            "invalid_profile_field",
            "subject.digest.sha256",
        ),
        (put("", *RESULT, "name"), "invalid_profile_field", "predicate.result.name"),
        (put("a", *RESULT, "mediaType"), "invalid_profile_field", "media_type"),
        (put("0" * 63, *RESULT, "sha256"), "invalid_profile_field", "predicate.result.sha256"),
        (put("other", *RESULT, "name"), "subject_descriptor_mismatch", None),
        (put("other/type", *RESULT, "mediaType"), "subject_descriptor_mismatch", None),
        (put("00" * 32, *RESULT, "sha256"), "subject_descriptor_mismatch", None),
    ],
)
def test_each_broken_rule_has_its_code_and_field(edit: Edit, code: str, field: str | None) -> None:
    assert code_of_check(edit) == (code, field)


def test_two_subjects_are_refused() -> None:
    def double(statement: dict[str, Any]) -> None:
        statement["subject"] *= 2

    assert code_of_check(double) == ("invalid_profile_field", "subject")


def test_texts_at_their_limits_pass_and_count_characters_not_bytes() -> None:
    def edit(statement: dict[str, Any]) -> None:
        predicate, name, media = statement["predicate"], "😀" * 1024, "a/" + "b" * 253
        predicate["executionId"], predicate["tenant"] = "é" * 256, "😀" * 128
        predicate["receipt"] = sealed({**predicate["receipt"], "job_id": "é" * 256})
        for holder in (statement["subject"][0], predicate["result"]):
            holder["name"], holder["mediaType"] = name, media

    check_statement(read_statement(edited(edit)))


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"tenant": ""}, "invalid_profile_field", "predicate.tenant"),
        ({"tenant": "a\n"}, "invalid_profile_field", "predicate.tenant"),
        ({"tenant": "\ud800"}, "json_encoding", None),
        ({"execution_id": "other"}, "invalid_profile_field", "predicate.receipt.job_id"),
        ({"subject_name": ""}, "invalid_profile_field", "subject.name"),
        ({"media_type": "x"}, "invalid_profile_field", "media_type"),
        ({"receipt_json": b"[]"}, "invalid_profile_field", "predicate.receipt"),
        ({"receipt_json": b"{"}, "invalid_json", None),
        ({"receipt_json": b'{"a":1,"a":1}'}, "invalid_json", None),
        ({"receipt_json": b" " * 1_048_577}, "statement_too_large", None),
        ({"receipt_json": b'{"n":1.5}'}, "number_out_of_range", None),
        ({"receipt_json": b'{"n":9007199254740992}'}, "number_out_of_range", None),
        ({"receipt_json": b'{"s":"' + b"a" * 204_800 + b'"}'}, "receipt_too_complex", None),
        (
            {"receipt_json": b'{"a":' + b"[" * 64 + b"]" * 64 + b"}"},
            "invalid_profile_field",
            "predicate.receipt.depth",
        ),
    ],
)
def test_the_builder_refuses_whatever_a_verifier_would(
    changes: dict[str, Any], code: str, field: str | None
) -> None:
    assert code_of_build(**changes) == (code, field)


def test_a_receipt_error_names_the_receipt() -> None:
    with pytest.raises(AttestationError) as caught:
        build(receipt_json=b"{}}")
    assert caught.value.detail["document"] == "Rookhold receipt"


def test_text_forms_hide_the_receipt() -> None:
    statement = read_statement(sample_evidence(note="hunter2").statement)
    assert "hunter2" not in repr(statement) + repr(statement.predicate)
