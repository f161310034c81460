"""The bodies of the API about jobs: their members, defaults and tolerance."""

import json
from typing import Any

import pytest

from rookhold_types import (
    AttestationState,
    ErrorBody,
    ErrorMember,
    ExecutionPolicy,
    InvalidJsonError,
    JobAttestationStatus,
    JobDetail,
    JobStatus,
    JobView,
    ReplayPage,
    ResultView,
    SubmitResponse,
    WireEvent,
    decode_strict,
    encode,
    plain,
)

ROW = JobView(job_id="j", tenant="t", language="python", status=JobStatus.QUEUED, created_at_ms=1)
OBSERVED: dict[str, Any] = {
    "backend": "namespaces-dev",
    "bootstrap_ready": True,
    "isolation_class": "none",
    "isolated": False,
    "seccomp": True,
    "controls": ["rlimits", "seccomp"],
    "limit_enforcement": {"wall": True, "file": True},
    "network_allowed": False,
    "networking": "disabled",
}


def test_a_row_writes_every_member_also_the_empty_ones() -> None:
    assert json.loads(encode(ROW)) == {
        "job_id": "j",
        "tenant": "t",
        "language": "python",
        "status": "queued",
        "created_at_ms": 1,
        "started_at_ms": None,
        "finished_at_ms": None,
        "exit_code": None,
    }


def test_a_detail_opens_with_the_members_of_a_row() -> None:
    count = len(JobView.__struct_fields__)
    assert JobDetail.__struct_fields__[:count] == JobView.__struct_fields__
    assert JobDetail.__struct_fields__[count:] == (
        "requested_spec",
        "effective_spec",
        "execution_policy",
        "receipt",
        "receipt_sha256",
        "attestation",
        "queue",
    )


def test_a_fresh_detail_claims_nothing() -> None:
    detail = plain(JobDetail(**plain(ROW), requested_spec={}))
    assert set(detail["execution_policy"].values()) == {None}
    assert detail["attestation"].pop("available") is False
    assert detail["attestation"].pop("state") == "unavailable"
    assert set(detail["attestation"].values()) == {None}
    assert detail["effective_spec"] is detail["receipt"] is detail["queue"] is None


def test_a_submission_is_answered_by_paths_alone() -> None:
    assert plain(SubmitResponse.of("abc")) == {
        "job_id": "abc",
        "status": "queued",
        "stream_url": "/v1/jobs/abc/stream",
        "replay_url": "/v1/jobs/abc/replay",
        "stream_ticket_url": "/v1/jobs/abc/stream-ticket",
    }


@pytest.mark.parametrize("status", JobStatus)
def test_a_result_has_base64_only_where_it_is_set(status: JobStatus) -> None:
    exact = ResultView(job_id="j", status=status, stdout="a", stderr="")
    assert not {"stdout_base64", "stderr_base64"} & plain(exact).keys()
    inexact = ResultView(job_id="j", status=status, stdout="", stderr="", stderr_base64="/w==")
    assert plain(inexact)["stderr_base64"] == "/w=="
    assert decode_strict(encode(inexact), ResultView) == inexact


def test_the_policy_is_what_the_receipt_observed() -> None:
    policy = plain(ExecutionPolicy.from_receipt(OBSERVED | {"outcome": "succeeded"}))
    assert policy["sandbox"] == "namespaces-dev"
    assert policy["controls"] == ["rlimits", "seccomp"]
    assert policy["limit_enforcement"]["cpu"] is False
    assert policy["rootfs_sha256"] is None
    assert "backend" not in policy


@pytest.mark.parametrize("ready", [None, 1, "true", []])
def test_without_a_boolean_readiness_there_is_no_policy(ready: object) -> None:
    assert ExecutionPolicy.from_receipt(OBSERVED | {"bootstrap_ready": ready}) == ExecutionPolicy()


@pytest.mark.parametrize(
    "receipt",
    [None, {}, {"backend": "off"}, OBSERVED | {"controls": 1}, OBSERVED | {"isolated": "no"}],
)
def test_a_receipt_that_says_too_little_or_nonsense_gives_no_policy(receipt: Any) -> None:
    assert ExecutionPolicy.from_receipt(receipt) == ExecutionPolicy()


def test_a_never_ready_job_shows_its_backend_and_nothing_in_force() -> None:
    receipt = OBSERVED | {"bootstrap_ready": False, "controls": [], "limit_enforcement": {}}
    policy = ExecutionPolicy.from_receipt(receipt)
    assert (policy.sandbox, policy.bootstrap_ready, policy.controls) == (
        "namespaces-dev",
        False,
        (),
    )
    assert policy.limit_enforcement is not None
    assert set(plain(policy.limit_enforcement).values()) == {False}


def test_attestation_states_are_those_of_the_contract() -> None:
    assert set(AttestationState) == {"available", "pending", "failed", "unavailable"}
    assert len(JobAttestationStatus.__struct_fields__) == 13


def test_every_member_of_an_error_is_always_present() -> None:
    member = ErrorMember(code="c", message="m", request_id="r", retryable=False)
    assert json.loads(encode(ErrorBody(error=member))) == {
        "error": {"code": "c", "message": "m", "request_id": "r", "retryable": False}
    }


@pytest.mark.parametrize("member", ["code", "message", "request_id", "retryable"])
def test_an_error_without_a_member_is_no_error_body(member: str) -> None:
    body = {"code": "c", "message": "m", "request_id": "r", "retryable": False}
    del body[member]
    with pytest.raises(InvalidJsonError):
        decode_strict(json.dumps({"error": body}).encode(), ErrorBody)


def test_a_page_of_history_travels_unchanged() -> None:
    event = WireEvent(seq=1, ts_ms=2, kind="later", data={"a": [None]})
    page = ReplayPage(events=(event,), next_cursor=1, complete=True)
    assert decode_strict(encode(page), ReplayPage) == page
