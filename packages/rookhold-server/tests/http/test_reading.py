"""Lists, details, replays, results, downloads: parameters, waits, large answers."""

import hashlib
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apsw
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


def test_no_wait_answers_202_at_once(gateway: Any) -> None:
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    began = time.monotonic()
    answer = gateway.call("GET", f"/v1/jobs/{job_id}/result?wait_seconds=0")
    assert time.monotonic() - began < 2
    assert (answer.status, answer.json["status"]) == (202, "running")


def test_a_wait_ends_when_the_job_does(gateway: Any) -> None:
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    peer = gateway.connect()
    peer.request("GET", f"/v1/jobs/{job_id}/result?wait_seconds=30")
    assert gateway.eventually(lambda: gateway.services.pools.result_waits.used == 1)
    gateway.engine.set_status("a", job_id, JobStatus.SUCCEEDED)
    answer = peer.answer()
    assert (answer.status, answer.json["stdout"]) == (200, "hello\n")
    assert gateway.services.pools.result_waits.used == 0


def test_a_job_removed_during_a_wait_is_told_as_such(
    gateway: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def removed(*_: object) -> bool:
        raise Refusal("job_not_found")

    monkeypatch.setattr(gateway.engine, "wait_terminal", removed)
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    assert gateway.call("GET", f"/v1/jobs/{job_id}/result").code == "job_not_found"
    assert gateway.services.pools.result_waits.used == 0


def test_shutdown_ends_a_wait_with_503_within_half_a_second(gateway: Any) -> None:
    job_id = gateway.engine.add("a", JobStatus.RUNNING)
    peer = gateway.connect()
    peer.request("GET", f"/v1/jobs/{job_id}/result?wait_seconds=300")
    assert gateway.eventually(lambda: gateway.services.pools.result_waits.used == 1)
    began = time.monotonic()
    gateway.do(gateway.services.pools.close)
    gateway.do(gateway.engine.begin_shutdown)
    answer = peer.answer()
    assert time.monotonic() - began < 0.5
    assert (answer.status, answer.code) == (503, "shutting_down")


def test_full_wait_pools_refuse_and_spare_those_who_need_no_wait(gateway: Any) -> None:
    pool = gateway.services.pools.result_waits
    running, ended = gateway.engine.add("a", JobStatus.RUNNING), gateway.engine.add("a")
    for _ in range(8):
        gateway.connect().request("GET", f"/v1/jobs/{running}/result?wait_seconds=300")
    assert gateway.eventually(lambda: pool.used == 8)
    answer = gateway.call("GET", f"/v1/jobs/{running}/result?wait_seconds=1")
    assert (answer.status, answer.code) == (429, "tenant_result_wait_capacity")
    assert answer.header("retry-after") == "1"
    assert gateway.call("GET", f"/v1/jobs/{running}/result?wait_seconds=0").status == 202
    assert gateway.call("GET", f"/v1/jobs/{ended}/result?wait_seconds=300").status == 200
    pool._total = 8
    theirs = gateway.engine.add("b", JobStatus.RUNNING)
    answer = gateway.call("GET", f"/v1/jobs/{theirs}/result", key="key-of-a-tenant-b")
    assert (answer.status, answer.code) == (503, "result_wait_capacity")
    gateway.peers[0].close()  # an abandoned wait
    assert gateway.eventually(lambda: pool.used == 7)


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


def test_one_slow_reader_leaves_its_tenant_a_slot(gateway: Any) -> None:
    slow_readers(gateway, 1)
    assert gateway.call("GET", f"/v1/jobs/{gateway.engine.add('a')}").status == 200


def test_a_third_large_answer_waits_and_is_then_refused(gateway: Any) -> None:
    slow_readers(gateway, 2)
    began = time.monotonic()
    answer = gateway.call("GET", f"/v1/jobs/{gateway.engine.add('a')}/replay")
    assert (answer.status, answer.code) == (429, "tenant_response_capacity")
    assert 1.8 < time.monotonic() - began < 8
    slow_readers(gateway, 2, key="key-of-a-tenant-b")
    answer = gateway.call("GET", f"/v1/jobs/{gateway.engine.add('a')}/result")
    assert (answer.status, answer.code) == (503, "response_capacity")


def test_a_third_large_answer_is_served_if_a_slot_comes_free(gateway: Any) -> None:
    first, _ = slow_readers(gateway, 2)
    job_id = gateway.engine.add("a")
    with ThreadPoolExecutor(1) as threads:
        third = threads.submit(gateway.call, "GET", f"/v1/jobs/{job_id}/result")
        time.sleep(0.2)
        assert not third.done()
        first.close()
        assert third.result(10).status == 200


def test_shutdown_ends_the_wait_for_a_slot(gateway: Any) -> None:
    slow_readers(gateway, 2)
    peer = gateway.connect()
    peer.request("GET", f"/v1/jobs/{gateway.engine.add('a')}")
    time.sleep(0.2)
    gateway.do(gateway.services.pools.close)
    assert peer.answer().code == "shutting_down"


def test_a_slot_is_held_to_the_end_of_the_body(gateway: Any) -> None:
    (peer,) = slow_readers(gateway, 1)
    pool = gateway.services.pools.large_responses
    time.sleep(0.2)
    assert pool.used == 1
    left = 30_000_000 - len(peer.buffer)
    while left > 0:
        left -= len(peer.socket.recv(1 << 20))
    assert gateway.eventually(lambda: pool.used == 0)


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


def test_no_store_transaction_is_open_while_a_reader_is_slow(real: Any) -> None:
    spec = {"language": "python", "code": "print('\\x01' * 1_000_000, end='')"}
    job_id = real.submit(spec).json["job_id"]
    assert real.call("GET", f"/v1/jobs/{job_id}/result?wait_seconds=60").status == 200
    peer = real.connect(receive_buffer=4096)
    peer.request("GET", f"/v1/jobs/{job_id}/result")
    peer.head()
    time.sleep(0.2)
    assert real.services.pools.large_responses.used == 1
    assert real.submit({"language": "bash", "code": "true"}).status == 201
    db = apsw.Connection(str(real.database))
    try:
        # A checkpoint that truncates waits for every reader of the log: here it must not have to.
        ended = real.eventually(
            lambda: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0] == 0
        )
        assert ended, "a reader holds the log"
    finally:
        db.close()
    assert real.services.pools.large_responses.used == 1
