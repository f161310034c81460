import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_attestation import (
    ArtifactDigest,
    AttestationError,
    Policy,
    PublicKey,
    Verified,
    ed25519,
    profile,
    sign_statement,
    strictjson,
    verify_envelope,
)
from rookhold_attestation.canonical import receipt_digest
from rookhold_attestation.pae import pae
from rookhold_attestation.testing import (
    JOB_ID,
    TENANT,
    Evidence,
    sample_evidence,
    sample_key,
    sign_anything,
)

EVIDENCE = sample_evidence()
KEY = EVIDENCE.key
FULL_POLICY = Policy(
    tenant=TENANT,
    subject_name=f"coop://jobs/{JOB_ID}/result",
    media_type=profile.RESULT_MEDIA_TYPE,
)


def verify(envelope: bytes, **changes: Any) -> Verified:
    arguments = {"artifact": EVIDENCE.artifact, "keys": [KEY.public_key], **changes}
    return verify_envelope(envelope, **arguments)


def refusal(envelope: bytes, **changes: Any) -> AttestationError:
    with pytest.raises(AttestationError) as caught:
        verify(envelope, **changes)
    return caught.value


def code(envelope: bytes, **changes: Any) -> str:
    return refusal(envelope, **changes).code


def changed_envelope(edit: Callable[[dict[str, Any]], object], base: Evidence = EVIDENCE) -> bytes:
    envelope = json.loads(base.envelope)
    edit(envelope)
    return json.dumps(envelope, separators=(",", ":")).encode()


def with_hint(*hint: str) -> bytes:
    def edit(envelope: dict[str, Any]) -> None:
        del envelope["signatures"][0]["keyid"]
        if hint:
            envelope["signatures"][0]["keyid"] = hint[0]

    return changed_envelope(edit)


def with_sig(change: Callable[[str], str]) -> bytes:
    def edit(envelope: dict[str, Any]) -> None:
        envelope["signatures"][0]["sig"] = change(envelope["signatures"][0]["sig"])

    return changed_envelope(edit)


def with_payload(change: Callable[[str], str]) -> bytes:
    return changed_envelope(lambda envelope: envelope.update(payload=change(envelope["payload"])))


def url_safe(text: str) -> str:
    return text.replace("+", "-").replace("/", "_")


def flipped(text: str) -> str:
    """Flip one bit of what the base64 text stands for."""
    data = bytearray(base64.b64decode(text))
    data[10] ^= 1
    return base64.b64encode(data).decode()


def signed_edit(edit: Callable[[dict[str, Any]], object]) -> bytes:
    """Sign a changed statement, as only a holder of the key could."""
    statement = json.loads(EVIDENCE.statement)
    edit(statement)
    return sign_anything(json.dumps(statement).encode(), KEY)


# V1: round trip and hints


def test_a_round_trip_verifies_and_returns_the_signed_bytes() -> None:
    verified = verify(EVIDENCE.envelope, policy=FULL_POLICY)
    assert verified.statement_bytes == EVIDENCE.statement
    assert verified.key_ids == (KEY.key_id,)
    assert (verified.execution_id, verified.tenant) == (JOB_ID, TENANT)
    assert (verified.outcome, verified.event_chain_complete) == ("succeeded", True)
    assert verified.artifact == ArtifactDigest.of(EVIDENCE.artifact)
    assert (verified.subject_name, verified.media_type) == FULL_POLICY[2:]
    assert verified.receipt == json.loads(EVIDENCE.receipt_json)


def test_a_digest_and_size_serve_instead_of_the_artifact() -> None:
    digest = hashlib.sha256(EVIDENCE.artifact).hexdigest()
    known = ArtifactDigest.known(digest, len(EVIDENCE.artifact))
    assert verify(EVIDENCE.envelope, artifact=known).outcome == "succeeded"


@pytest.mark.parametrize("hint", ["", "wrong", "x" * 257, "\x00", "\x85", "é" * 200])
def test_a_wrong_oversized_or_control_character_hint_does_not_matter(hint: str) -> None:
    others = [sample_key(number).public_key for number in range(2, 10)]
    keys = [*others, KEY.public_key]
    assert verify(with_hint(hint), keys=keys).key_ids == (KEY.key_id,)
    assert verify(with_hint(), keys=keys).key_ids == (KEY.key_id,)


def test_the_hinted_key_is_tried_first(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    original = PublicKey.verifies

    def recording(key: PublicKey, signature: bytes, message: bytes) -> bool:
        tried.append(key.key_id)
        return original(key, signature, message)

    monkeypatch.setattr(PublicKey, "verifies", recording)
    verify(
        EVIDENCE.envelope, keys=[*(sample_key(n).public_key for n in range(2, 17)), KEY.public_key]
    )
    assert tried == [KEY.key_id]


def test_a_forged_hint_does_not_help() -> None:
    attacker = sample_key(66)
    envelope = changed_envelope(
        lambda envelope: envelope["signatures"][0].update(keyid=KEY.key_id),
        sample_evidence(attacker),
    )
    assert code(envelope) == "signature_threshold_not_met"
    assert verify(envelope, keys=[KEY.public_key, attacker.public_key]).key_ids == (
        attacker.key_id,
    )


# V2: thresholds count keys


def test_two_entries_by_one_key_count_once() -> None:
    envelope = changed_envelope(lambda e: e["signatures"].append(e["signatures"][0]))
    error = refusal(
        envelope,
        keys=[KEY.public_key, sample_key(2).public_key],
        policy=Policy(signatures_required=2),
    )
    assert error.code == "signature_threshold_not_met"
    assert error.detail == {"required": 2, "verified": 1}


def test_a_threshold_of_two_reports_both_ids_sorted() -> None:
    keys = [sample_key(number) for number in (3, 4, 5)]
    envelope = sign_statement(EVIDENCE.statement, keys)
    both = [keys[2].public_key, keys[0].public_key]
    verified = verify(envelope, keys=both, policy=Policy(signatures_required=2))
    assert verified.key_ids == tuple(sorted(key.key_id for key in both))


def test_checking_stops_at_the_threshold() -> None:
    keys = [sample_key(number) for number in range(1, 9)]
    envelope = sign_statement(EVIDENCE.statement, keys)
    public = [key.public_key for key in keys]
    assert len(verify(envelope, keys=public).key_ids) == 1
    assert len(verify(envelope, keys=public, policy=Policy(signatures_required=8)).key_ids) == 8


def test_equal_trusted_keys_are_merged() -> None:
    twice = [KEY.public_key, PublicKey(KEY.public_key.raw)]
    assert verify(EVIDENCE.envelope, keys=twice).key_ids == (KEY.key_id,)
    assert refusal(EVIDENCE.envelope, keys=twice, policy=Policy(signatures_required=2)).detail == {
        "required": 2,
        "available": 1,
    }


def test_different_keys_with_one_id_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    other = sample_key(2).public_key
    monkeypatch.setattr(other, "key_id", KEY.key_id)
    assert code(EVIDENCE.envelope, keys=[KEY.public_key, other]) == "key_id_collision"


# V3 and V4: signatures before meaning


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"[]", b'{"a":1,"a":1}', b"{} {}"])
def test_a_malformed_payload_is_judged_only_under_a_valid_signature(payload: bytes) -> None:
    error = refusal(sign_anything(payload, KEY))
    assert (error.code, error.detail["document"]) == ("invalid_json", "in-toto statement")
    assert code(sign_anything(payload, sample_key(2))) == "signature_threshold_not_met"


def test_a_changed_payload_type_fails_the_signature_and_a_signed_one_fails_by_itself() -> None:
    envelope = changed_envelope(lambda e: e.update(payloadType="text/plain"))
    assert code(envelope) == "signature_threshold_not_met"
    foreign = sign_anything(EVIDENCE.statement, KEY, payload_type="text/plain")
    assert code(foreign) == "payload_type_mismatch"
    assert code(sign_anything(b"\xff", KEY, payload_type="x")) == "payload_type_mismatch"


# V5: encodings


def evidence_with_special_characters() -> Evidence:
    """Find evidence with `+` and `/` both in its payload text and in its signature text."""
    for number in range(256):
        evidence = sample_evidence(sample_key(number), note="~~~~???>>>>")
        decoded = json.loads(evidence.envelope)
        texts = (decoded["payload"], decoded["signatures"][0]["sig"])
        if all({"+", "/"} <= set(text) for text in texts):
            return evidence
    raise AssertionError("no such key among the test keys")


SPECIAL = evidence_with_special_characters()
SPECIAL_TRUST = {"artifact": SPECIAL.artifact, "keys": [SPECIAL.key.public_key]}


def recoded(field: str, change: Callable[[str], str], base: Evidence = SPECIAL) -> bytes:
    def edit(envelope: dict[str, Any]) -> None:
        holder = envelope if field == "payload" else envelope["signatures"][0]
        assert change(holder[field]) != holder[field]
        holder[field] = change(holder[field])

    return changed_envelope(edit, base)


@pytest.mark.parametrize("field", ["payload", "sig"])
def test_padded_url_safe_text_is_accepted_field_by_field(field: str) -> None:
    verified = verify(recoded(field, url_safe), **SPECIAL_TRUST)
    assert verified.statement_bytes == SPECIAL.statement


@pytest.mark.parametrize(("field", "named"), [("payload", "payload"), ("sig", "signature")])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda text: text.replace("+", "-"), "two alphabets in one text"),
        (lambda text: text[:20] + " " + text[20:], "a character outside the alphabet"),
        (lambda text: text[:20] + "\n" + text[20:], "a character outside the alphabet"),
        (lambda text: text + "\n", "a character outside the alphabet"),
        (lambda text: text + "=", "padding is missing or wrong"),
    ],
    ids=["mixed", "space", "newline", "final-newline", "excess"],
)
def test_mixed_alphabets_whitespace_and_excess_padding_are_refused(
    field: str, named: str, change: Callable[[str], str], reason: str
) -> None:
    error = refusal(recoded(field, change), **SPECIAL_TRUST)
    assert error.code == "invalid_base64"
    assert error.detail == {"field": named, "reason": reason}


def test_trailing_bits_are_refused() -> None:
    # A 64-byte signature always ends in "==", so its last digit has four unused bits.
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

    def stray(text: str) -> str:
        return f"{text[:-3]}{digits[digits.index(text[-3]) + 1]}=="

    error = refusal(with_sig(stray))
    assert error.detail == {"field": "signature", "reason": "unused bits are not zero"}


@pytest.mark.parametrize("size", [1, 63, 65, 128])
def test_a_signature_of_another_length_is_refused(size: int) -> None:
    envelope = with_sig(lambda _: base64.b64encode(bytes(size)).decode())
    assert code(envelope) == "invalid_signature_length"


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"sig": "!"}, "invalid_base64"),
        ({"sig": "AAAA"}, "invalid_signature_length"),
        ({"sig": ""}, "invalid_signature_length"),
        ({"keyid": "x"}, "invalid_json"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_one_malformed_entry_fails_everything_wherever_it_stands(
    entry: dict[str, str], expected: str, first: bool
) -> None:
    envelope = changed_envelope(lambda e: e["signatures"].insert(0 if first else 1, entry))
    assert code(envelope) == expected


def test_a_noncanonical_scalar_fails() -> None:
    def raised(text: str) -> str:
        raw = base64.b64decode(text)
        scalar = int.from_bytes(raw[32:], "little") + ed25519.GROUP_ORDER
        return base64.b64encode(raw[:32] + scalar.to_bytes(32, "little")).decode()

    assert code(with_sig(raised)) == "signature_threshold_not_met"


def test_a_small_order_key_fails_even_if_it_slipped_into_the_trusted_ones() -> None:
    weak = PublicKey(KEY.public_key.raw)
    weak.raw = b"\x01" + bytes(31)
    # Under the identity as key, the identity with S = 0 would sign every message.
    envelope = with_sig(lambda _: base64.b64encode(weak.raw + bytes(32)).decode())
    assert code(envelope, keys=[weak]) == "signature_threshold_not_met"


# V6 and V7: statement, artifact, policy


def test_extra_digests_and_unknown_members_are_accepted() -> None:
    def extend(statement: dict[str, Any]) -> None:
        statement["subject"][0]["digest"]["sha512"] = "x"
        statement["predicate"]["later"] = {"n": 0.5}

    assert verify(signed_edit(extend)).outcome == "succeeded"


def test_a_repeated_member_inside_the_receipt_is_refused() -> None:
    twice = EVIDENCE.statement.replace(b'"exit_code":0', b'"exit_code":0,"exit_code":0')
    assert code(sign_anything(twice, KEY)) == "invalid_json"


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (lambda s: s["predicate"].pop("tenant"), "invalid_json"),
        (lambda s: s["predicate"].update(schemaVersion=1.0), "invalid_json"),
        (lambda s: s["subject"].append(s["subject"][0]), "invalid_profile_field"),
        (lambda s: s["subject"][0]["digest"].update(sha256="AB" * 32), "invalid_profile_field"),
        (lambda s: s["predicate"]["receipt"].update(outcome="failed"), "invalid_profile_field"),
        (lambda s: s["predicate"]["result"].update(sizeBytes=1), "subject_size_mismatch"),
    ],
    ids=["tenant", "float", "two", "upper", "receipt", "size"],
)
def test_a_signed_statement_that_breaks_a_rule_is_refused_with_its_code(
    edit: Callable[[dict[str, Any]], object], expected: str
) -> None:
    assert code(signed_edit(edit)) == expected


def test_another_artifact_is_refused_by_its_digest_and_another_size_by_its_size() -> None:
    assert code(EVIDENCE.envelope, artifact=b"other") == "subject_digest_mismatch"
    assert code(EVIDENCE.envelope, artifact=b"") == "subject_digest_mismatch"
    digest = ArtifactDigest.of(EVIDENCE.artifact)
    longer = digest._replace(size_bytes=digest.size_bytes + 1)
    assert code(EVIDENCE.envelope, artifact=longer) == "subject_size_mismatch"


@pytest.mark.parametrize(
    ("policy", "expected", "field"),
    [
        (FULL_POLICY._replace(tenant="other"), "tenant_policy_mismatch", None),
        (FULL_POLICY._replace(tenant=""), "tenant_policy_mismatch", None),
        (FULL_POLICY._replace(subject_name="x"), "subject_policy_mismatch", "name"),
        (FULL_POLICY._replace(media_type="x/y"), "subject_policy_mismatch", "media type"),
    ],
)
def test_each_policy_member_is_compared(policy: Policy, expected: str, field: str | None) -> None:
    error = refusal(EVIDENCE.envelope, policy=policy)
    assert (error.code, error.detail.get("field")) == (expected, field)


def test_a_failed_job_verifies_because_success_is_not_what_is_verified() -> None:
    evidence = sample_evidence(outcome="failed")
    assert verify(evidence.envelope, artifact=evidence.artifact).outcome == "failed"


# V8: limits that come before any parsing


def test_33_signatures_are_a_json_error_and_32_are_not() -> None:
    full = changed_envelope(lambda e: e.update(signatures=e["signatures"] * 32))
    assert verify(full).outcome == "succeeded"
    over = changed_envelope(lambda e: e.update(signatures=e["signatures"] * 33))
    assert code(over) == "invalid_json"


def test_trust_is_judged_before_the_envelope_is_parsed() -> None:
    many = [sample_key(number).public_key for number in range(17)]
    assert code(b"not json", keys=[]) == "no_trusted_keys"
    assert code(b"not json", keys=many) == "too_many_trusted_keys"
    for required in (0, -1, 2):
        policy = Policy(signatures_required=required)
        error = refusal(b"not json", policy=policy)
        assert error.code == "invalid_signature_threshold"
        assert error.detail == {"required": required, "available": 1}
    assert verify(EVIDENCE.envelope, keys=[*many[:15], KEY.public_key]).key_ids == (KEY.key_id,)


def test_sizes_over_the_limits_are_refused() -> None:
    assert code(b" " * 2_097_153) == "envelope_too_large"
    assert code(b" " * 2_097_152) == "invalid_json"
    assert code(EVIDENCE.envelope, artifact=bytes(16_777_217)) == "subject_artifact_too_large"
    large = base64.b64encode(bytes(1_048_577)).decode()
    assert code(with_payload(lambda _: large)) == "statement_too_large"


# V9: numbers in receipts of other producers


NUMBERS = (
    '"aa":-0,"ab":0.0,"ac":1e-5,"ad":9.9e-6,"ae":1e15,"af":1e16,"ag":18446744073709551615,'
    '"ah":18446744073709551616,"ai":-9223372036854775809,"aj":0.00009,"ak":1e-7,"al":1.5e300,"am":-1E+2'
)
SPELT = (
    '"aa":-0.0,"ab":0.0,"ac":0.00001,"ad":9.9e-6,"ae":1000000000000000.0,"af":1e+16,'
    '"ag":18446744073709551615,"ah":1.8446744073709552e+19,"ai":-9.223372036854776e+18,'
    '"aj":0.00009,"ak":1e-7,"al":1.5e+300,"am":-100.0'
)


def test_a_receipt_with_every_kind_of_number_verifies_by_the_spelling_rules() -> None:
    core = (
        '"event_chain":{"complete":true,"events":3,"head":"' + "ab" * 32 + '","version":1},'
        f'"job_id":"{JOB_ID}","outcome":"succeeded","version":1'
    )
    digest = hashlib.sha256(f"{{{SPELT},{core}}}".encode()).hexdigest()
    receipt = f'{{{core},{NUMBERS},"receipt_sha256":"{digest}"}}'
    statement = json.loads(EVIDENCE.statement)
    statement["predicate"]["receipt"] = "HERE"
    payload = json.dumps(statement).replace('"HERE"', receipt).encode()
    verified = verify(sign_anything(payload, KEY))
    assert verified.receipt["receipt_sha256"] == digest == receipt_digest(verified.receipt)


# The order of section 7


def test_failures_come_in_the_documented_order_from_bytes_to_signatures() -> None:
    """Everything is wrong at once; each repair uncovers the next refusal."""
    wrong: dict[str, Any] = {
        "payloadType": "x" * 256,
        "payload": "!",
        "signatures": [],
    }
    fresh_entries = [{"sig": ""}, {"sig": "!"}]
    arguments: dict[str, Any] = {"keys": [], "policy": Policy(signatures_required=2)}
    signed = json.loads(sign_anything(b"\xff", KEY, payload_type="text/plain"))

    def now() -> str:
        return code(json.dumps(wrong).encode(), **arguments)

    assert code(b"\xff" * 2_097_153, **arguments) == "envelope_too_large"
    assert code(b"\xff", **arguments) == "no_trusted_keys"
    arguments["keys"] = [KEY.public_key]
    assert code(b"\xff", **arguments) == "invalid_signature_threshold"
    arguments["policy"] = Policy()
    assert code(b"\xff", **arguments) == "invalid_json"
    assert now() == "no_signatures"
    wrong["signatures"] = fresh_entries
    assert now() == "invalid_profile_field"
    wrong["payloadType"] = "text/plain"
    assert now() == "invalid_signature_length"
    wrong["signatures"] = [{"sig": "!"}, {"sig": "AAAA"}]
    assert refusal(json.dumps(wrong).encode(), **arguments).detail["field"] == "payload"
    wrong["payload"] = base64.b64encode(bytes(1_048_577)).decode()
    assert now() == "statement_too_large"
    wrong["payload"] = signed["payload"]
    assert refusal(json.dumps(wrong).encode(), **arguments).detail["field"] == "signature"
    wrong["signatures"] = [{"sig": "AAAA"}]
    assert now() == "invalid_signature_length"
    wrong["signatures"] = [{"sig": base64.b64encode(bytes(64)).decode()}]
    assert now() == "signature_threshold_not_met"
    wrong["signatures"] = signed["signatures"]
    assert now() == "payload_type_mismatch"


def test_failures_come_in_the_documented_order_inside_the_statement() -> None:
    """A signed statement with everything wrong; each repair uncovers the next refusal."""
    good = json.loads(EVIDENCE.statement)
    subject = {"name": "", "mediaType": "x", "digest": {}}
    result = {"name": "", "mediaType": "x", "sizeBytes": 1, "sha256": "x"}
    receipt = {"version": 2}
    statement = {
        "_type": "x",
        "predicateType": "x",
        "subject": [subject, subject],
        "predicate": {
            "schemaVersion": 2,
            "executionId": "",
            "tenant": "",
            "receipt": None,
            "result": result,
        },
    }
    predicate: dict[str, Any] = statement["predicate"]  # type: ignore[assignment]
    sound = {"name": "n", "mediaType": "a/b", "digest": {"sha256": "00" * 32}}
    repairs: list[tuple[str, str | None, dict[str, Any], str, object]] = [
        ("statement_type_mismatch", None, statement, "_type", good["_type"]),
        ("predicate_type_mismatch", None, statement, "predicateType", good["predicateType"]),
        ("predicate_schema_version_mismatch", None, predicate, "schemaVersion", 1),
        ("invalid_profile_field", "subject", statement, "subject", [subject]),
        ("invalid_profile_field", "predicate.execution_id", predicate, "executionId", JOB_ID),
        ("invalid_profile_field", "predicate.tenant", predicate, "tenant", TENANT),
        ("invalid_profile_field", "predicate.receipt", predicate, "receipt", receipt),
        (
            "invalid_profile_field",
            "predicate.receipt.version",
            predicate,
            "receipt",
            good["predicate"]["receipt"],
        ),
        ("invalid_profile_field", "subject.name", subject, "name", "n"),
        ("invalid_profile_field", "media_type", subject, "mediaType", "a/b"),
        ("invalid_profile_field", "subject.digest", subject, "digest", {"sha256": "x"}),
        ("invalid_profile_field", "subject.digest.sha256", subject, "digest", sound["digest"]),
        ("invalid_profile_field", "predicate.result.name", result, "name", "other"),
        ("invalid_profile_field", "media_type", result, "mediaType", "a/b"),
        ("invalid_profile_field", "predicate.result.sha256", result, "sha256", "00" * 32),
        ("subject_descriptor_mismatch", None, result, "name", "n"),
    ]
    wrong_policy = Policy(tenant="x", subject_name="x", media_type="x")
    arguments: dict[str, Any] = {"artifact": b"other", "policy": wrong_policy}

    def now() -> AttestationError:
        return refusal(sign_anything(json.dumps(statement).encode(), KEY), **arguments)

    for expected, field, holder, name, value in repairs:
        assert (now().code, now().detail.get("field")) == (expected, field)
        holder[name] = value
    assert now().code == "subject_digest_mismatch"
    arguments["artifact"] = ArtifactDigest("00" * 32, 2)
    assert now().code == "subject_size_mismatch"
    arguments["artifact"] = ArtifactDigest("00" * 32, 1)
    assert now().code == "tenant_policy_mismatch"
    arguments["policy"] = wrong_policy._replace(tenant=TENANT)
    assert now().detail == {"field": "name"}
    arguments["policy"] = arguments["policy"]._replace(subject_name="n")
    assert now().detail == {"field": "media type"}


# FR-19: strict where it matters, tolerant where DSSE is


@pytest.mark.parametrize("field", ["payload", "sig"])
def test_fr19_a_url_safe_text_verifies_with_padding_and_is_refused_without(field: str) -> None:
    base = padded_evidence()
    trust = {"artifact": base.artifact, "keys": [base.key.public_key]}
    padded = recoded(field, url_safe, base)
    assert verify(padded, **trust).statement_bytes == base.statement
    error = refusal(recoded(field, lambda text: url_safe(text).rstrip("="), base), **trust)
    assert error.detail["reason"] == "padding is missing or wrong"


def padded_evidence() -> Evidence:
    """Find evidence whose payload ends in padding, besides having special characters."""
    for length in range(1, 4):
        for number in range(256):
            evidence = sample_evidence(sample_key(number), note="~" * 8 + ">" * length)
            decoded = json.loads(evidence.envelope)
            texts = (decoded["payload"], decoded["signatures"][0]["sig"])
            if all(text.endswith("=") and {"+", "/"} & set(text) for text in texts):
                return evidence
    raise AssertionError("no such evidence among the test keys")


@pytest.mark.parametrize(
    "envelope",
    [
        with_hint(),
        with_hint("nonsense \u202e"),
        changed_envelope(lambda e: e.update(extra={"nested": [1, 2.5]})),
        changed_envelope(lambda e: e["signatures"][0].update(cert="x")),
    ],
    ids=["b-no-keyid", "c-nonsense-keyid", "d-unknown-field", "d-unknown-signature-field"],
)
def test_fr19_b_c_d_verify_when_the_key_itself_is_trusted(envelope: bytes) -> None:
    assert verify(envelope, policy=FULL_POLICY).statement_bytes == EVIDENCE.statement


def test_fr19_e_f_g_h_fail_with_distinct_reasons() -> None:
    refusals = {
        "e": refusal(with_payload(flipped)),
        "f": refusal(changed_envelope(lambda e: e.update(payloadType="text/plain"))),
        "g": refusal(changed_envelope(lambda e: e.update(signatures=[]))),
        "h": refusal(with_payload(lambda text: f"{text[:8]} {text[8:]}")),
    }
    assert {letter: error.code for letter, error in refusals.items()} == {
        "e": "signature_threshold_not_met",
        "f": "signature_threshold_not_met",
        "g": "no_signatures",
        "h": "invalid_base64",
    }


def test_fr19_the_envelope_and_the_statement_are_each_parsed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed = []
    original = strictjson.parse_text

    def counting(text: str, document: str) -> strictjson.Json:
        parsed.append(document)
        return original(text, document)

    monkeypatch.setattr(strictjson, "parse_text", counting)
    verify(EVIDENCE.envelope)
    assert parsed == ["DSSE envelope", "in-toto statement"]


# Properties


@given(st.integers(0, len(EVIDENCE.artifact) - 1), st.integers(1, 255))
def test_no_changed_byte_of_the_artifact_verifies(at: int, difference: int) -> None:
    changed = bytearray(EVIDENCE.artifact)
    changed[at] ^= difference
    assert code(EVIDENCE.envelope, artifact=bytes(changed)) == "subject_digest_mismatch"


@given(st.binary(min_size=1, max_size=3), st.booleans())
def test_an_artifact_with_bytes_added_or_removed_never_verifies(extra: bytes, front: bool) -> None:
    longer = extra + EVIDENCE.artifact if front else EVIDENCE.artifact + extra
    shorter = EVIDENCE.artifact[len(extra) :] if front else EVIDENCE.artifact[: -len(extra)]
    assert code(EVIDENCE.envelope, artifact=longer) == "subject_digest_mismatch"
    assert code(EVIDENCE.envelope, artifact=shorter) == "subject_digest_mismatch"


HINT = (EVIDENCE.envelope.index(b'"keyid"'), EVIDENCE.envelope.index(b',"sig"'))


def check_changed_byte(at: int, difference: int) -> None:
    changed = bytearray(EVIDENCE.envelope)
    changed[at] ^= difference
    try:
        verified = verify(bytes(changed))
    except AttestationError:
        return
    # Nothing signed can have changed. What can: the hint, and `+` or `/` spelt `-` or `_`.
    assert verified.statement_bytes == EVIDENCE.statement
    respelt = bytes([EVIDENCE.envelope[at], changed[at]]) in (b"+-", b"/_")
    assert HINT[0] <= at < HINT[1] or respelt


@pytest.mark.parametrize("difference", [0x01, 0x20, 0x80])
def test_no_changed_byte_of_an_envelope_verifies_outside_the_unsigned_hint(
    difference: int,
) -> None:
    for at in range(len(EVIDENCE.envelope)):
        check_changed_byte(at, difference)


@given(st.integers(0, len(EVIDENCE.envelope) - 1), st.integers(1, 255))
def test_no_other_change_of_a_byte_does_so_either(at: int, difference: int) -> None:
    check_changed_byte(at, difference)


@given(st.integers(0, len(EVIDENCE.statement) * 8 - 1))
def test_no_flipped_bit_of_the_payload_verifies(bit: int) -> None:
    payload = bytearray(EVIDENCE.statement)
    payload[bit // 8] ^= 1 << bit % 8
    encoded = base64.b64encode(payload).decode()
    assert code(with_payload(lambda _: encoded)) == "signature_threshold_not_met"


@given(st.binary(max_size=200))
def test_bytes_that_are_no_envelope_are_refused_and_never_crash(data: bytes) -> None:
    with pytest.raises(AttestationError):
        verify(data)


def test_the_signed_bytes_are_the_pre_authentication_encoding() -> None:
    signature = base64.b64decode(json.loads(EVIDENCE.envelope)["signatures"][0]["sig"])
    message = pae(profile.PAYLOAD_TYPE, EVIDENCE.statement)
    assert KEY.public_key.verifies(signature, message)
    assert not KEY.public_key.verifies(signature, EVIDENCE.statement)


def test_the_text_form_of_a_result_hides_the_receipt() -> None:
    evidence = sample_evidence(note="hunter2")
    verified = verify(evidence.envelope, artifact=evidence.artifact)
    assert "hunter2" not in repr(verified)
