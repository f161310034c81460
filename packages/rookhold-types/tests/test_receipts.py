"""Receipts: digest over every member, sealed text, and the stored specs they refer to."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookhold_types import (
    POLICY_MEMBERS,
    CanonicalError,
    EffectiveLimits,
    ExecutionPolicy,
    InvalidJsonError,
    IsolationClass,
    JobFile,
    JobSpec,
    Receipt,
    Requirements,
    canonical,
    canonical_sha256,
    decode_strict,
    effective_stored_spec,
    placeholder_spec,
    policy_sha256,
    receipt_digest,
    seal_receipt,
)

RECEIPT: dict[str, Any] = {
    "version": 1,
    "job_id": "j",
    "outcome": "succeeded",
    "exit_code": 0,
    "killed_by": None,
    "event_chain": {"version": 1, "head": "a" * 64, "events": 3, "complete": True},
    "extension": {"z": [1, {"y": None}], "a": "é"},
}
SPEC = JobSpec(
    language="python",
    code="secret code",
    stdin="secret stdin",
    requirements=Requirements(minimum_isolation=IsolationClass.LINUX_SHARED_KERNEL),
    files=(JobFile(path="input/a", content_base64="YQ=="),),
    outputs=("output/a",),
)


def test_the_digest_is_that_of_the_canonical_json_without_itself() -> None:
    text = json.dumps(RECEIPT, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert receipt_digest(RECEIPT) == hashlib.sha256(text.encode()).hexdigest()
    assert receipt_digest(RECEIPT | {"receipt_sha256": "0" * 64}) == receipt_digest(RECEIPT)


@pytest.mark.parametrize(
    "change",
    [
        {"exit_code": 1},
        {"exit_code": None},
        {"outcome": "failed"},
        {"added": None},
        {"extension": {"z": [1, {"y": None}], "a": "e\u0301"}},
        {"extension": {"receipt_sha256": "0" * 64}},
        {"Receipt_sha256": "0" * 64},
    ],
)
def test_every_member_takes_part(change: dict[str, Any]) -> None:
    assert receipt_digest(RECEIPT | change) != receipt_digest(RECEIPT)


@pytest.mark.parametrize("member", RECEIPT)
def test_a_missing_member_shows(member: str) -> None:
    rest = {name: value for name, value in RECEIPT.items() if name != member}
    assert receipt_digest(rest) != receipt_digest(RECEIPT)


@pytest.mark.parametrize("value", [1.0, 2**53, -(2**53), float("nan"), chr(0xD800), b""])
def test_a_receipt_that_cannot_be_written_canonically_has_no_digest(value: object) -> None:
    with pytest.raises(CanonicalError):
        seal_receipt(RECEIPT | {"extension": value})


def test_a_sealed_receipt_is_canonical_and_holds_its_own_digest() -> None:
    sealed = seal_receipt(RECEIPT | {"receipt_sha256": "stale"})
    value = json.loads(sealed.text)
    assert sealed.text == canonical(value)
    assert value == RECEIPT | {"receipt_sha256": sealed.sha256}
    assert receipt_digest(value) == sealed.sha256


@given(st.permutations(list(RECEIPT)))
def test_member_order_makes_no_difference(order: list[str]) -> None:
    assert seal_receipt({name: RECEIPT[name] for name in order}) == seal_receipt(RECEIPT)


def test_a_reader_knows_members_by_type_and_leaves_the_rest() -> None:
    receipt = decode_strict(seal_receipt(RECEIPT).text, Receipt)
    assert receipt.event_chain is not None
    assert (receipt.outcome, receipt.event_chain.events) == ("succeeded", 3)
    assert receipt.controls is None
    assert decode_strict(b"{}", Receipt) == Receipt()


def test_a_reader_takes_a_receipt_with_everything() -> None:
    everything = {
        **RECEIPT,
        "requested_limits": {"wall_seconds": 15, "added_later": 1},
        "requirements": {"minimum_isolation": "none"},
        "resource_usage": {
            "wall_time_ms": 5,
            "cpu_time_usec": None,
            "memory_peak_bytes": 1,
            "samples": [[0, 1, 2], [3, 4, 5]],
        },
        "output": {
            "encoding": "utf8-records-with-eol",
            "stdout_bytes": 0,
            "stderr_bytes": 0,
            "stdout_sha256": "",
            "stderr_sha256": "",
            "stdout_bytes_seen": None,
            "truncated": False,
        },
        "artifacts": [{"path": "output/a", "size_bytes": 1, "sha256": ""}],
        "controls": ["a-later-control", "seccomp"],
        "effective_limits": {"wall_seconds": 15, "allow_network": False},
        "limit_enforcement": {"wall": True},
        "networking": "disabled",
    }
    receipt = decode_strict(canonical(everything), Receipt)
    assert receipt.controls == ("a-later-control", "seccomp")
    assert receipt.resource_usage is not None
    assert receipt.resource_usage.samples == ((0, 1, 2), (3, 4, 5))


@pytest.mark.parametrize(
    "change",
    [
        {"exit_code": "0"},
        {"version": 1.0},
        {"controls": "seccomp"},
        {"bootstrap_ready": 1},
        {"event_chain": {"version": 1}},
        {"artifacts": [{"path": "output/a"}]},
        {"resource_usage": {"wall_time_ms": 1, "samples": [[1, 2]]}},
        {"resource_usage": {"wall_time_ms": 1, "samples": [[1, 2, 3.5]]}},
    ],
)
def test_a_reader_refuses_known_members_of_another_type(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidJsonError):
        decode_strict(json.dumps(RECEIPT | change).encode(), Receipt)


def test_the_policy_digest_covers_exactly_its_members() -> None:
    evidence = dict.fromkeys(POLICY_MEMBERS, None)
    digest = policy_sha256(evidence)
    assert digest == canonical_sha256(evidence) == policy_sha256(evidence | {"other": 1})
    for member in POLICY_MEMBERS:
        assert policy_sha256(evidence | {member: "x"}) != digest
        with pytest.raises(KeyError):
            policy_sha256({name: None for name in POLICY_MEMBERS if name != member})


def test_every_policy_member_is_a_member_of_receipts() -> None:
    assert len(set(POLICY_MEMBERS)) == 17
    assert set(POLICY_MEMBERS) < set(Receipt.__struct_fields__)


def test_the_policy_view_shows_what_the_policy_digest_covers() -> None:
    shown = set(ExecutionPolicy.__struct_fields__) - {"sandbox"} | {"backend"}
    assert set(POLICY_MEMBERS) - shown == {"minimum_isolation", "effective_limits"}
    assert shown < set(POLICY_MEMBERS)


def test_the_placeholder_has_observed_nothing() -> None:
    assert placeholder_spec(SPEC.requirements) == {
        "storage_version": 2,
        "limits": dict.fromkeys(EffectiveLimits.__struct_fields__, None),
        "requirements": {"minimum_isolation": "linux-shared-kernel"},
        "isolation_class": None,
    }


def test_placeholders_do_not_share_their_parts() -> None:
    placeholder_spec(SPEC.requirements)["limits"]["wall_seconds"] = 5
    assert placeholder_spec(SPEC.requirements)["limits"]["wall_seconds"] is None


def test_the_effective_spec_holds_the_observed_and_neither_code_nor_stdin() -> None:
    stored = effective_stored_spec(
        SPEC, limits=EffectiveLimits(mem_mb=16), isolation_class="linux-shared-kernel"
    )
    assert stored == {
        "storage_version": 2,
        "limits": dict.fromkeys(EffectiveLimits.__struct_fields__, None) | {"mem_mb": 16},
        "requirements": {"minimum_isolation": "linux-shared-kernel"},
        "files": [{"path": "input/a", "content_base64": "YQ=="}],
        "outputs": ["output/a"],
        "runtime": None,
        "isolation_class": "linux-shared-kernel",
    }
    for text in (canonical(stored), canonical(placeholder_spec(SPEC.requirements))):
        assert b"secret" not in text
