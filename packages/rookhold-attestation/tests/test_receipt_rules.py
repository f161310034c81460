import pytest

from rookhold_attestation.errors import AttestationError, InvalidProfileFieldError
from rookhold_attestation.receipt_rules import check_complexity, check_core
from rookhold_attestation.strictjson import Json
from rookhold_attestation.testing import JOB_ID, TENANT, sample_receipt, sealed


def refused_field(receipt: Json) -> str:
    with pytest.raises(InvalidProfileFieldError) as caught:
        check_core(receipt, execution_id=JOB_ID, tenant=TENANT)
    return str(caught.value.detail["field"]).removeprefix("predicate.receipt")


def chain(**changes: Json) -> Json:
    return {"version": 1, "events": 3, "complete": True, "head": "ab" * 32, **changes}


def nested(depth: int) -> dict[str, Json]:
    """A receipt whose innermost scalar is at this depth, the receipt itself being at 1."""
    value: Json = 0
    for _ in range(depth - 2):
        value = [value]
    return {"x": value}


def code_of_complexity(receipt: Json) -> str:
    with pytest.raises(AttestationError) as caught:
        check_complexity(receipt)
    return caught.value.code


def test_a_sound_receipt_passes_with_and_without_a_tenant_and_with_unknown_members() -> None:
    for changes in [{}, {"tenant": TENANT}, {"governance": {"run": [1, "x"]}}]:
        check_core(sample_receipt(**changes), execution_id=JOB_ID, tenant=TENANT)


def test_unordered_and_incomplete_histories_pass_because_they_are_reported_not_judged() -> None:
    receipt = sample_receipt(outcome="error", event_chain=chain(complete=False, events=2**64 - 1))
    check_core(receipt, execution_id=JOB_ID, tenant=TENANT)


@pytest.mark.parametrize("receipt", [None, [], "x", 1, True])
def test_a_receipt_that_is_no_object_is_refused(receipt: Json) -> None:
    assert refused_field(receipt) == ""


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"version": 2}, ".version"),
        ({"version": 1.0}, ".version"),
        ({"version": True}, ".version"),
        ({"version": "1"}, ".version"),
        ({"version": 0}, ".version"),
        ({"job_id": "other"}, ".job_id"),
        ({"job_id": None}, ".job_id"),
        ({"tenant": "other"}, ".tenant"),
        ({"tenant": None}, ".tenant"),
        ({"tenant": [TENANT]}, ".tenant"),
        ({"outcome": "running"}, ".outcome"),
        ({"outcome": "queued"}, ".outcome"),
        ({"outcome": ["succeeded"]}, ".outcome"),
        ({"outcome": None}, ".outcome"),
        ({"event_chain": None}, ".event_chain"),
        ({"event_chain": []}, ".event_chain"),
        ({"event_chain": chain(version=True)}, ".event_chain.version"),
        ({"event_chain": chain(version=2)}, ".event_chain.version"),
        ({"event_chain": chain(events=-1)}, ".event_chain.events"),
        ({"event_chain": chain(events=3.0)}, ".event_chain.events"),
        ({"event_chain": chain(events=True)}, ".event_chain.events"),
        ({"event_chain": chain(complete=1)}, ".event_chain.complete"),
        ({"event_chain": chain(complete=None)}, ".event_chain.complete"),
        ({"event_chain": chain(head=None)}, ".event_chain.head"),
        ({"event_chain": chain(head="AB" * 32)}, ".event_chain.head"),
        ({"event_chain": chain(head="ab" * 31)}, ".event_chain.head"),
        ({"event_chain": chain(head="ab" * 32 + "\n")}, ".event_chain.head"),
    ],
)
def test_each_broken_rule_names_its_field(changes: dict[str, Json], field: str) -> None:
    assert refused_field(sample_receipt(**changes)) == field


@pytest.mark.parametrize("name", ["version", "job_id", "outcome", "event_chain"])
def test_each_required_member_is_missed(name: str) -> None:
    receipt = {key: value for key, value in sample_receipt().items() if key != name}
    assert refused_field(sealed(receipt)) == f".{name}"


@pytest.mark.parametrize("digest", ["00" * 32, "AB" * 32, "", None, 5])
def test_a_digest_that_does_not_recompute_is_refused(digest: Json) -> None:
    assert refused_field({**sample_receipt(), "receipt_sha256": digest}) == ".receipt_sha256"


def test_an_added_or_changed_member_breaks_the_digest() -> None:
    receipt = sample_receipt()
    assert refused_field({**receipt, "note": 1}) == ".receipt_sha256"
    assert refused_field({**receipt, "exit_code": 1}) == ".receipt_sha256"


def test_rules_are_judged_in_the_documented_order() -> None:
    """Everything is wrong at once; each repair uncovers the next refusal."""
    receipt: dict[str, Json] = {"tenant": "other"}
    repairs: list[tuple[str, str, Json]] = [
        (".version", "version", 1),
        (".job_id", "job_id", JOB_ID),
        (".tenant", "tenant", TENANT),
        (".outcome", "outcome", "failed"),
        (".receipt_sha256", "receipt_sha256", "00" * 32),
        (".event_chain", "event_chain", {}),
        (".event_chain.version", "event_chain", {"version": 1}),
        (".event_chain.events", "event_chain", {"version": 1, "events": 0}),
        (".event_chain.complete", "event_chain", {"version": 1, "events": 0, "complete": True}),
        (".event_chain.head", "event_chain", chain()),
        (".receipt_sha256", "receipt_sha256", None),
    ]
    for field, name, value in repairs:
        assert refused_field(receipt) == field
        receipt[name] = value


def test_depth_64_passes_and_65_is_refused() -> None:
    check_complexity(nested(64))
    with pytest.raises(InvalidProfileFieldError) as caught:
        check_complexity(nested(65))
    assert caught.value.detail == {"field": "predicate.receipt.depth"}


def test_as_many_nodes_as_allowed_pass_and_one_more_is_refused() -> None:
    # The root and the array are two nodes. Nulls would break the size limit first, at four bytes.
    elements: list[Json] = [0] * (65_536 - 2)
    check_complexity({"x": elements})
    assert code_of_complexity({"x": [*elements, 0]}) == "receipt_too_complex"


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("", 2),
        ("abc", 20),
        ("é", 14),
        (None, 4),
        (True, 5),
        (False, 5),
        (0, 1),
        (-12, 3),
        (1.5, 3),
        (-0.0, 4),
        ([], 2),
        ([0, 0], 6),
        ({}, 2),
        ({"ab": 0}, 19),
    ],
)
def test_sizes_are_estimated_as_documented(
    value: Json, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rookhold_attestation.profile.RECEIPT_ESTIMATED_BYTES_MAX", size)
    check_complexity(value)
    monkeypatch.setattr("rookhold_attestation.profile.RECEIPT_ESTIMATED_BYTES_MAX", size - 1)
    assert code_of_complexity(value) == "receipt_too_complex"


def test_a_string_of_200_kib_is_too_much() -> None:
    check_complexity({"x": "a" * 131_000})
    assert code_of_complexity({"x": "a" * 204_800}) == "receipt_too_complex"


def test_a_very_deep_value_is_refused_without_recursion() -> None:
    value: Json = []
    for _ in range(100_000):
        value = [value]
    assert code_of_complexity(value) == "invalid_profile_field"
