from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

from rookhold import (
    ApiError,
    ConfigurationError,
    IntegrityError,
    UnreachableError,
    WaitExpiredError,
)

if TYPE_CHECKING:
    from conftest import Scripted

ACCEPTED = {"job_id": "j", "status": "queued", "stream_url": "/later", "added": [1]}


def job(**changed: Any) -> dict[str, Any]:
    return {
        "job_id": "j",
        "tenant": "local",
        "language": "python",
        "status": "running",
        "created_at_ms": 1,
        "started_at_ms": 2,
        "finished_at_ms": None,
        "exit_code": None,
        "unheard_of": {"a": 1},
    } | changed


def result(status: str = "succeeded", **changed: Any) -> dict[str, Any]:
    return {
        "job_id": "j",
        "status": status,
        "exit_code": 0 if status == "succeeded" else None,
        "duration_ms": 3,
        "stdout": "42\n",
        "stderr": "",
        "truncated": False,
        "violations": [],
        "artifacts": [],
        "unheard_of": 1,
    } | changed


def event(seq: int, kind: str = "stdout", **data: Any) -> dict[str, Any]:
    return {
        "seq": seq,
        "ts_ms": 1,
        "kind": kind,
        "data": data or {"line": f"line {seq}", "eol": True},
        "prev_hash": "",
        "event_hash": "0" * 64,
        "hash_version": 1,
        "unheard_of": 1,
    }


def page(*events: dict[str, Any], complete: bool = False) -> dict[str, Any]:
    return {
        "events": list(events),
        "next_cursor": events[-1]["seq"] if events else None,
        "complete": complete,
    }


def test_a_submission_says_only_what_was_given(gateway: Scripted) -> None:
    gateway.then(ACCEPTED, 201, idempotency_replayed="false")
    with gateway.client() as client:
        submitted = client.submit("python", "print(1)")
    assert json.loads(gateway.seen[0].body) == {"language": "python", "code": "print(1)"}
    assert (submitted.job_id, submitted.replayed) == ("j", False)


def test_a_submission_carries_everything_that_was_given(gateway: Scripted) -> None:
    gateway.then(ACCEPTED, 201)
    with gateway.client() as client:
        client.submit(
            "node",
            "ü",
            stdin="in",
            limits={"wall_seconds": 1},
            files={"input/a": b"\x00\xff"},
            outputs=["output/b"],
            requirements={"minimum_isolation": "none"},
            runtime="node:x",
            idempotency_key="mine",
        )
    assert json.loads(gateway.seen[0].body) == {
        "language": "node",
        "code": "ü",
        "stdin": "in",
        "limits": {"wall_seconds": 1},
        "files": [{"path": "input/a", "content_base64": base64.b64encode(b"\x00\xff").decode()}],
        "outputs": ["output/b"],
        "requirements": {"minimum_isolation": "none"},
        "runtime": "node:x",
    }
    assert gateway.seen[0].headers["idempotency-key"] == "mine"


@pytest.mark.parametrize(
    "wrong",
    [
        {"code": "\ud800"},
        {"outputs": "output/b"},
        {"limits": {"wall_seconds": float("nan")}},
        {"idempotency_key": ""},
        {"idempotency_key": "a b"},
        {"idempotency_key": "a" * 129},
    ],
    ids=str,
)
def test_what_cannot_be_written_is_refused_here(gateway: Scripted, wrong: dict[str, Any]) -> None:
    with gateway.client() as client, pytest.raises(ConfigurationError):
        client.submit(**({"language": "python", "code": "1"} | wrong))
    assert gateway.seen == []


def test_run_waits_over_dropped_connections_and_a_restart(gateway: Scripted) -> None:
    gateway.then(ACCEPTED, 201).then(result("running"), 202)
    gateway.then_drop().then_drop().then_drop()
    gateway.then_refuse(503, "shutting_down", retryable=True, retry_after="0")
    gateway.then(result())
    with gateway.client() as client:
        found = client.run("python", "print(42)")
    assert (found.status, found.exit_code, found.stdout) == ("succeeded", 0, "42\n")
    assert sum(request.method == "POST" for request in gateway.seen) == 1


def test_run_gives_up_on_a_gateway_that_stays_away(gateway: Scripted) -> None:
    gateway.then(ACCEPTED, 201)
    for _ in range(30):
        gateway.then_drop()
    with gateway.client(patience=0.5) as client, pytest.raises(UnreachableError):
        client.run("python", "print(42)")


def test_a_refusal_that_will_not_change_ends_the_wait_at_once(gateway: Scripted) -> None:
    gateway.then_refuse(404, "job_not_found")
    with gateway.client() as client, pytest.raises(ApiError) as caught:
        client.wait("j")
    assert caught.value.code == "job_not_found"
    assert len(gateway.seen) == 1


def test_waiting_ends_when_the_callers_time_is_over(gateway: Scripted) -> None:
    for _ in range(10_000):
        gateway.then(result("running"), 202)
    with gateway.client() as client, pytest.raises(WaitExpiredError):
        client.wait("j", 0.3)


def test_an_unfinished_result_is_one_too(gateway: Scripted) -> None:
    gateway.then(result("running"), 202)
    with gateway.client() as client:
        found = client.result("j")
    assert not found.finished
    assert gateway.seen[0].path == "/v1/jobs/j/result?wait_seconds=0"


def test_output_that_is_no_text_comes_back_byte_exact(gateway: Scripted) -> None:
    raw = b"\xff\x00\n"
    gateway.then(result(stdout="\ufffd\x00\n", stdout_base64=base64.b64encode(raw).decode()))
    with gateway.client() as client:
        found = client.result("j")
    assert found.stdout_bytes == raw
    assert found.stderr_bytes == b""


def artifact(content: bytes = b"data", **changed: Any) -> dict[str, Any]:
    return {
        "path": "output/a",
        "content_base64": base64.b64encode(content).decode(),
        "size_bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    } | changed


def test_an_output_file_is_checked_against_its_digest(gateway: Scripted) -> None:
    gateway.then(result(artifacts=[artifact()]))
    gateway.then(result(artifacts=[artifact(sha256="0" * 64)]))
    gateway.then(result(artifacts=[artifact(size_bytes=3)]))
    with gateway.client() as client:
        assert client.result("j").artifacts[0].content == b"data"
        for _ in range(2):
            with pytest.raises(IntegrityError):
                client.result("j")


def test_lists_are_read_page_by_page_as_they_are_asked_for(gateway: Scripted) -> None:
    gateway.then({"items": [job(job_id="a"), job(job_id="b")], "next_cursor": "1:b"})
    gateway.then({"items": [job(job_id="c", status="failed", exit_code=3)], "next_cursor": None})
    with gateway.client() as client:
        found = client.jobs(status="failed", page_size=2)
        assert [next(found).job_id, next(found).job_id] == ["a", "b"]
        assert len(gateway.seen) == 1
        last = next(found)
        assert (last.job_id, last.exit_code, last.finished) == ("c", 3, True)
        assert list(found) == []
    assert gateway.seen[1].path == "/v1/jobs?limit=2&cursor=1%3Ab&status=failed"


def test_a_followed_history_has_no_gap_and_no_double(gateway: Scripted) -> None:
    gateway.then(page(event(1, "accepted"), event(2, "started")))
    gateway.then(page())
    gateway.then_drop().then_drop().then_drop()
    gateway.then_refuse(429, "rate_limit_exceeded", retryable=True, retry_after="0")
    gateway.then(page(event(3), event(4)))
    gateway.then_cut_short()
    gateway.then(page(event(5, "finished"), complete=True))
    with gateway.client() as client:
        assert [one.seq for one in client.events("j", follow=True)] == [1, 2, 3, 4, 5]
    assert gateway.seen[-1].path == "/v1/jobs/j/replay?after=4&limit=1000"


def test_without_follow_the_history_ends_with_what_is_stored(gateway: Scripted) -> None:
    gateway.then(page(event(3), event(4))).then(page())
    with gateway.client() as client:
        assert [one.seq for one in client.events("j", 2)] == [3, 4]


@pytest.mark.parametrize("wrong", [(1, 3), (2,), (1, 1)])
def test_a_hole_in_the_history_is_an_error(gateway: Scripted, wrong: tuple[int, ...]) -> None:
    gateway.then(page(*(event(seq) for seq in wrong), complete=True))
    with gateway.client() as client, pytest.raises(IntegrityError):
        list(client.events("j"))


@pytest.mark.parametrize(
    ("data", "exact"),
    [
        ({"line": "a", "eol": True}, b"a\n"),
        ({"line": "a\r", "eol": False}, b"a\r"),
        ({"line": "", "eol": True}, b"\n"),
        ({"line": "\ufffd", "eol": True, "raw_base64": "/w=="}, b"\xff\n"),
    ],
    ids=str,
)
def test_an_output_event_stands_for_exact_bytes(
    gateway: Scripted, data: dict[str, Any], exact: bytes
) -> None:
    gateway.then(page(event(1, **data), complete=True))
    with gateway.client() as client:
        assert next(client.events("j")).output == exact


def test_kinds_of_events_that_are_not_known_are_passed_on(gateway: Scripted) -> None:
    gateway.then(page(event(1, "from_the_future", x=1), complete=True))
    with gateway.client() as client:
        (found,) = client.events("j")
    assert (found.kind, found.data, found.output) == ("from_the_future", {"x": 1}, b"")


def test_a_download_is_checked_against_its_digest(gateway: Scripted) -> None:
    content = b'{"exact":  "bytes"}'
    digest = hashlib.sha256(content).hexdigest()
    gateway.then(content, x_content_sha256=digest, content_type="application/x")
    gateway.then(content, x_content_sha256="0" * 64).then(content)
    with gateway.client() as client:
        found = client.attestation("j", 5)
        assert (found.content, found.sha256, found.media_type) == (content, digest, "application/x")
        for _ in range(2):
            with pytest.raises(IntegrityError):
                client.result_artifact("j")
    assert gateway.seen[0].path == "/v1/jobs/j/attestation?wait_seconds=5"


def test_a_gateway_too_busy_for_a_large_answer_is_asked_again(gateway: Scripted) -> None:
    for _ in range(2):
        gateway.then_refuse(429, "tenant_response_capacity", retryable=True, retry_after="0")
    gateway.then(result())
    with gateway.client() as client:
        assert client.result("j").status == "succeeded"


def test_a_submission_that_is_refused_for_capacity_is_not_repeated(gateway: Scripted) -> None:
    gateway.then_refuse(429, "tenant_queue_saturated", retryable=True, retry_after="1")
    with gateway.client() as client, pytest.raises(ApiError) as caught:
        client.submit("python", "1")
    assert (caught.value.code, len(gateway.seen)) == ("tenant_queue_saturated", 1)


def test_a_cancel_says_what_it_changed(gateway: Scripted) -> None:
    gateway.then({"job": job(), "cancellation_requested": True, "already_terminal": False})
    with gateway.client() as client:
        asked = client.cancel("j")
    assert (asked.job.job_id, asked.cancellation_requested) == ("j", True)
    assert gateway.seen[0].method == "DELETE"


def test_readiness_names_the_reason(gateway: Scripted) -> None:
    gateway.then({"ok": True}).then_refuse(503, "startup_recovery", retryable=True)
    with gateway.client() as client:
        assert client.ready().ready
        waiting = client.ready()
    assert (waiting.ready, waiting.code) == (False, "startup_recovery")


def test_nothing_shows_the_key_or_the_output_by_accident(gateway: Scripted) -> None:
    gateway.then(result(stdout="secret output"))
    with gateway.client() as client:
        assert "secret output" not in repr(client.result("j"))
        assert "scripted-gateway-key" not in repr(vars(client))
