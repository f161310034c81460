"""Reading a submission and the order in which its faults are told."""

import base64
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

Start = Callable[..., Any]
SPEC = {"language": "bash", "code": "true"}


def accepted(real: Any) -> list[str]:
    page = real.call("GET", "/v1/jobs?limit=500").json
    return [row["job_id"] for row in page["items"]]


def test_an_accepted_job_is_201_with_its_place(real: Any) -> None:
    answer = real.submit(SPEC)
    job_id = answer.json["job_id"]
    assert answer.status == 201
    assert answer.header("location") == f"/v1/jobs/{job_id}"
    assert answer.header("idempotency-replayed") == "false"
    assert answer.json == {
        "job_id": job_id,
        "status": "queued",
        "stream_url": f"/v1/jobs/{job_id}/stream",
        "replay_url": f"/v1/jobs/{job_id}/replay",
        "stream_ticket_url": f"/v1/jobs/{job_id}/stream-ticket",
    }


@pytest.mark.parametrize(
    "text",
    [
        '{"language":"bash","code":"true","x":1}',
        '{"language":"bash","code":"true","limits":{"x":1}}',
        '{"language":"bash","code":"true","requirements":{"x":1}}',
        '{"language":"bash","code":"true","files":[{"path":"input/a","content_base64":"","x":1}]}',
        '{"language":"bash","code":"true","code":"true"}',
        '{"language":"bash","code":"true","limits":{"wall_seconds":-1}}',
        '{"language":"bash","code":"true","limits":{"wall_seconds":1.5}}',
        '{"language":"bash","code":"true","limits":{"wall_seconds":4294967296}}',
        '{"language":"bash","code":"true","requirements":{"minimum_isolation":"strong"}}',
        '{"language":"bash","code":"\\ud800"}',
        '{"language":"bash"}',
        '{"language":"bash","code":1}',
        "[]",
        "",
        '{"language":"bash","code":"true"} x',
    ],
)
def test_every_decoding_fault_is_invalid_json(real: Any, text: str) -> None:
    before = accepted(real)
    answer = real.call("POST", "/v1/jobs", body=text.encode())
    assert (answer.status, answer.code) == (400, "invalid_json")
    assert accepted(real) == before


def file(path: str, content: bytes = b"") -> dict[str, str]:
    return {"path": path, "content_base64": base64.b64encode(content).decode()}


@pytest.mark.parametrize(
    ("spec", "status", "code"),
    [
        ({"language": "fortran"}, 400, "unsupported_language"),
        ({"language": "node"}, 422, "runtime_unavailable"),
        ({"code": " \n"}, 400, "empty_code"),
        ({"code": "x" * (1024 * 1024 + 1)}, 413, "code_too_large"),
        ({"stdin": "x" * (1024 * 1024 + 1)}, 413, "stdin_too_large"),
        ({"files": [file(f"input/{n}") for n in range(33)]}, 413, "too_many_input_files"),
        ({"files": [file("input/../secret")]}, 400, "invalid_input_path"),
        ({"files": [file("input/a"), file("input/a")]}, 400, "duplicate_input_path"),
        (
            {"files": [{"path": "input/a", "content_base64": "YQ"}]},
            400,
            "invalid_input_base64",
        ),
        ({"files": [file("input/a", b"x" * (2**21 + 1))]}, 413, "input_file_too_large"),
        (
            {"files": [file(f"input/{n}", b"x" * (2**20 * 3 // 2)) for n in range(3)]},
            413,
            "input_files_too_large",
        ),
        ({"outputs": [f"output/{n}" for n in range(33)]}, 413, "too_many_output_files"),
        ({"outputs": ["output/../x"]}, 400, "invalid_output_path"),
        ({"outputs": ["output/a", "output/a"]}, 400, "duplicate_output_path"),
        ({"runtime": "bash:bookworm-20260826-core"}, 422, "runtime_pack_requires_isolation"),
        ({"limits": {"allow_network": True}}, 400, "network_opt_in_unsupported"),
        (
            {"requirements": {"minimum_isolation": "hardware-vm"}},
            422,
            "minimum_isolation_unsatisfied",
        ),
    ],
)
def test_a_spec_that_is_refused_says_why(
    real: Any, spec: dict[str, Any], status: int, code: str
) -> None:
    before = accepted(real)
    answer = real.submit(SPEC | spec)
    assert (answer.status, answer.code) == (status, code)
    assert answer.header("connection") is None
    assert accepted(real) == before


def test_the_key_is_judged_after_the_body_and_before_the_spec(real: Any) -> None:
    headers = (("idempotency-key", ""),)
    assert real.call("POST", "/v1/jobs", body=b"{", headers=headers).code == "invalid_json"
    answer = real.submit(SPEC | {"code": ""}, headers=headers)
    assert answer.code == "invalid_idempotency_key"


def hold_accepts(gateway: Any) -> None:
    gateway.engine.accepting = gateway.do(type(gateway.engine.accepting))


def test_a_permit_that_comes_free_in_time_is_taken(start: Start) -> None:
    gateway = start()
    hold_accepts(gateway)
    large = json.dumps(SPEC | {"stdin": "x" * 70_000}).encode()
    with ThreadPoolExecutor(3) as threads:
        answers = [threads.submit(gateway.call, "POST", "/v1/jobs", body=large) for _ in range(3)]
        assert gateway.eventually(lambda: gateway.engine.accepts_begun == 2)
        gateway.do(gateway.engine.accepting.set)
        assert [answer.result().status for answer in answers] == [201] * 3


def test_a_client_that_leaves_during_the_commit_leaves_one_job(start: Start) -> None:
    gateway = start()
    hold_accepts(gateway)
    peer = gateway.connect()
    peer.request("POST", "/v1/jobs", body=json.dumps(SPEC).encode())
    assert gateway.eventually(lambda: gateway.engine.accepts_begun == 1)
    peer.close()
    time.sleep(0.1)
    assert gateway.services.pools.small_bodies.used == 1  # the permit stays with the accept
    gateway.do(gateway.engine.accepting.set)
    assert gateway.eventually(lambda: gateway.services.pools.small_bodies.used == 0)
    assert len(gateway.engine.jobs) == 1
