"""Lists, details, replays, results, downloads: parameters, waits, large answers."""

import hashlib
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from rookhold_server.jobs.values import StoredAttestation
from rookhold_server.refusal import Refusal
from rookhold_types.service import PublicKeyView
from rookhold_types.states import JobStatus

Start = Callable[..., Any]
KEY = PublicKeyView(algorithm="Ed25519", key_id="k", public_key_pem="p", trust_notice="n")


def signed(gateway: Any, job_id: str) -> None:
    envelope, artifact = b'{"payload":"x"}', b'{"_type":"x"}'
    gateway.engine.attestations[job_id] = StoredAttestation(
        envelope=envelope,
        envelope_sha256=hashlib.sha256(envelope).hexdigest(),
        result_artifact=artifact,
        result_sha256=hashlib.sha256(artifact).hexdigest(),
        result_media_type="application/vnd.coop.execution-result.v1+json",
        key_id="k",
    )


def test_the_cursor_walks_the_list_without_overlap(gateway: Any) -> None:
    ids = {gateway.engine.add("a") for _ in range(7)}
    gateway.engine.add("b")
    seen: list[str] = []
    path = "/v1/jobs?limit=2"
    while path:
        page = gateway.call("GET", path).json
        seen += [row["job_id"] for row in page["items"]]
        assert all("receipt" not in row and "requested_spec" not in row for row in page["items"])
        cursor = page["next_cursor"]
        path = f"/v1/jobs?limit=2&cursor={cursor}" if cursor else ""
    assert len(seen) == 7
    assert set(seen) == ids


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("limit=0", "invalid_limit"),
        ("limit=501", "invalid_limit"),
        ("limit=x", "invalid_limit"),
        ("limit=", "invalid_limit"),
        ("limit=%2B5", "invalid_limit"),
        ("limit=1&limit=2", "invalid_limit"),
        ("cursor=x", "invalid_cursor"),
        ("cursor=-1:x", "invalid_cursor"),
        ("cursor=1:", "invalid_cursor"),
        ("cursor=99999999999999999999:x", "invalid_cursor"),
        ("cursor=1:" + "x" * 129, "invalid_cursor"),
        ("status=Queued", "invalid_status"),
        ("language=fortran", "unsupported_language"),
        ("page=2", "unknown_query_parameter"),
    ],
)
def test_a_list_refuses_a_bad_parameter(gateway: Any, query: str, code: str) -> None:
    answer = gateway.call("GET", f"/v1/jobs?{query}")
    assert (answer.status, answer.code) == (400, code)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("replay?after=-1", "invalid_event_cursor"),
        ("replay?after=x", "invalid_event_cursor"),
        ("replay?limit=0", "invalid_limit"),
        ("replay?limit=5001", "invalid_limit"),
        ("replay?x=1", "unknown_query_parameter"),
        ("attestation?x=1", "unknown_query_parameter"),
        ("result-artifact?x=1", "unknown_query_parameter"),
        ("attestation?wait_seconds=31", "invalid_wait_seconds"),
        ("result-artifact?wait_seconds=1.5", "invalid_wait_seconds"),
        ("result?wait_seconds=301", "invalid_wait_seconds"),
        ("result?wait_seconds=x", "invalid_wait_seconds"),
    ],
)
def test_a_job_route_refuses_a_bad_parameter(gateway: Any, path: str, code: str) -> None:
    answer = gateway.call("GET", f"/v1/jobs/{gateway.engine.add('a')}/{path}")
    assert (answer.status, answer.code) == (400, code)


def test_a_bad_wait_is_told_before_ownership(gateway: Any) -> None:
    foreign = gateway.engine.add("b")
    for path in ("result", "attestation", "result-artifact"):
        answer = gateway.call("GET", f"/v1/jobs/{foreign}/{path}?wait_seconds=301")
        assert answer.code == "invalid_wait_seconds"


def test_result_ignores_an_unknown_parameter(gateway: Any) -> None:
    job_id = gateway.engine.add("a")
    assert gateway.call("GET", f"/v1/jobs/{job_id}/result?x=1").status == 200
    assert gateway.call("GET", "/v1/whoami?x=1").status == 200


def test_a_job_removed_during_a_wait_is_told_as_such(
    gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def removed(*_: object) -> bool:
        raise Refusal("job_not_found")

    monkeypatch.setattr(gateway.engine, "wait_terminal", removed)
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    assert gateway.call("GET", f"/v1/jobs/{job_id}/result").code == "job_not_found"
    assert gateway.services.pools.result_waits.used == 0


def slow_readers(gateway: Any, count: int, key: str = "key-of-a-tenant-a") -> list[Any]:
    """Peers that hold a large-response slot each by reading nothing but the head."""
    gateway.engine.stdout = "x" * 30_000_000
    tenant = "a" if key.endswith("a") else "b"
    before = gateway.services.pools.large_responses.used
    peers = []
    for _ in range(count):
        peer = gateway.connect(receive_buffer=4096)
        peer.request("GET", f"/v1/jobs/{gateway.engine.add(tenant)}/result", key=key)
        peer.head()
        peers.append(peer)
    assert gateway.services.pools.large_responses.used == before + count
    gateway.engine.stdout = "short"
    return peers


def test_shutdown_ends_the_wait_for_a_slot(gateway: Any) -> None:
    slow_readers(gateway, 2)
    peer = gateway.connect()
    peer.request("GET", f"/v1/jobs/{gateway.engine.add('a')}")
    time.sleep(0.2)
    gateway.do(gateway.services.pools.close)
    assert peer.answer().code == "shutting_down"


def test_a_large_answer_has_its_exact_length(gateway: Any) -> None:
    gateway.engine.stdout = "é" * 1_000_001
    answer = gateway.call("GET", f"/v1/jobs/{gateway.engine.add('a')}/result")
    assert len(answer.body) == int(answer.header("content-length"))
    assert json.loads(answer.body)["stdout"] == "é" * 1_000_001


def test_downloads_are_the_stored_bytes_with_their_digest(start: Start) -> None:
    gateway = start(public_key=KEY)
    job_id = gateway.engine.add("a")
    signed(gateway, job_id)
    for path, kind in (
        ("attestation", "application/vnd.dsse.envelope.v1+json"),
        ("result-artifact", "application/vnd.coop.execution-result.v1+json"),
    ):
        answer = gateway.call("GET", f"/v1/jobs/{job_id}/{path}")
        assert answer.status == 200
        assert answer.header("content-type") == kind
        assert answer.header("x-content-sha256") == hashlib.sha256(answer.body).hexdigest()


def test_a_pending_signature_is_told_and_may_be_waited_for(start: Start) -> None:
    gateway = start(public_key=KEY)
    job_id = gateway.engine.add("a")
    gateway.engine.attestation_state = "attestation_pending"
    for path in ("attestation", "result-artifact"):
        answer = gateway.call("GET", f"/v1/jobs/{job_id}/{path}")
        assert (answer.status, answer.code) == (404, "attestation_pending")
        assert (answer.json["error"]["retryable"], answer.header("retry-after")) == (True, "1")
    peer = gateway.connect()
    peer.request("GET", f"/v1/jobs/{job_id}/attestation?wait_seconds=30")
    assert gateway.eventually(lambda: gateway.services.pools.result_waits.used == 1)
    signed(gateway, job_id)
    assert peer.answer().status == 200


def test_a_wait_for_a_signature_covers_the_rest_of_the_run(start: Start) -> None:
    gateway = start(public_key=KEY)
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    peer = gateway.connect()
    peer.request("GET", f"/v1/jobs/{job_id}/result-artifact?wait_seconds=30")
    assert gateway.eventually(lambda: gateway.services.pools.result_waits.used == 1)
    signed(gateway, job_id)
    assert peer.answer().status == 200


def test_without_signing_the_answer_is_immediate(gateway: Any) -> None:
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    began = time.monotonic()
    for path, code in (
        ("attestation", "attestation_unavailable"),
        ("result-artifact", "result_artifact_unavailable"),
    ):
        answer = gateway.call("GET", f"/v1/jobs/{job_id}/{path}?wait_seconds=30")
        assert (answer.status, answer.code) == (404, code)
        assert answer.json["error"]["retryable"] is False
    assert time.monotonic() - began < 3
    assert gateway.call("GET", "/v1/attestation/public-key").code == "attestations_disabled"


def test_a_terminal_job_that_will_never_be_signed_is_answered_at_once(start: Start) -> None:
    gateway = start(public_key=KEY)
    began = time.monotonic()
    path = f"/v1/jobs/{gateway.engine.add('a')}/attestation?wait_seconds=30"
    assert gateway.call("GET", path).code == "attestation_unavailable"
    assert time.monotonic() - began < 3


def test_the_public_key_is_served(start: Start) -> None:
    gateway = start(public_key=KEY)
    answer = gateway.call("GET", "/v1/attestation/public-key").json
    assert answer["key_id"] == "k"


def test_a_cancel_answers_with_the_job(gateway: Any) -> None:
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    answer = gateway.call("DELETE", f"/v1/jobs/{job_id}").json
    assert (answer["cancellation_requested"], answer["already_terminal"]) == (True, False)
