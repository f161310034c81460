"""The road of a job through the real engine, store and executor."""

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

Server = Callable[..., Any]


def finished(running: Any, spec: dict[str, Any], **options: Any) -> tuple[str, dict[str, Any]]:
    status, job = running.call("POST", "/v1/jobs", spec, **options)
    assert status == 201, job
    status, result = running.call("GET", f"/v1/jobs/{job['job_id']}/result?wait_seconds=60")
    assert status == 200
    return job["job_id"], result


def test_a_job_runs_and_its_result_is_read(server: Server) -> None:
    running = server().start()
    spec = {
        "language": "python",
        "code": "import sys; print(input() + '!'); print('err', file=sys.stderr)\n"
        "open('output/o', 'wb').write(open('input/i', 'rb').read() * 2)",
        "stdin": "hi",
        "files": [{"path": "input/i", "content_base64": base64.b64encode(b"\0x").decode()}],
        "outputs": ["output/o"],
        "limits": {"wall_seconds": 99999},
    }
    job_id, result = finished(running, spec)
    assert (result["status"], result["exit_code"]) == ("succeeded", 0)
    assert (result["stdout"], result["stderr"]) == ("hi!\n", "err\n")
    (artifact,) = result["artifacts"]
    assert base64.b64decode(artifact["content_base64"]) == b"\0x\0x"
    assert artifact["sha256"] == hashlib.sha256(b"\0x\0x").hexdigest()
    detail = running.call("GET", f"/v1/jobs/{job_id}")[1]
    assert detail["requested_spec"]["limits"]["wall_seconds"] == 99999
    assert detail["effective_spec"]["limits"]["wall_seconds"] == 300
    assert detail["receipt"]["receipt_sha256"] == detail["receipt_sha256"]
    page = running.call("GET", f"/v1/jobs/{job_id}/replay")[1]
    assert page["complete"] is True
    assert [event["seq"] for event in page["events"]] == list(range(1, len(page["events"]) + 1))
    assert page["events"][-1]["kind"] == "finished"
    first = running.call("GET", f"/v1/jobs/{job_id}/replay?limit=1")[1]
    assert (first["complete"], first["next_cursor"]) == (False, 1)
    assert running.stop() == 0


def test_another_tenants_job_does_not_exist(server: Server) -> None:
    running = server().start()
    job_id, _ = finished(running, {"language": "bash", "code": "echo mine"})
    other = running.environment["ROOKHOLD_API_KEYS"].rpartition("other:")[2]
    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/replay?after=x"),
        ("GET", "/result"),
        ("GET", "/attestation"),
        ("GET", "/result-artifact"),
    ):
        status, body = running.call(method, f"/v1/jobs/{job_id}{path}", key=other)
        assert (status, body["error"]["code"]) == (404, "job_not_found")
    assert running.call("GET", "/v1/jobs", key=other)[1]["items"] == []
    assert [row["job_id"] for row in running.call("GET", "/v1/jobs")[1]["items"]] == [job_id]


def test_a_keyed_submission_is_replayed_after_a_restart(server: Server) -> None:
    running = server().start()
    spec = {"language": "bash", "code": "echo once"}
    header = {"Idempotency-Key": "k1"}
    first = running.call("POST", "/v1/jobs", spec, **header)[1]
    assert running.stop() == 0
    running = server().start()
    assert running.call("POST", "/v1/jobs", spec, **header)[1]["job_id"] == first["job_id"]
    status, body = running.call("POST", "/v1/jobs", {**spec, "code": "echo two"}, **header)
    assert (status, body["error"]["code"]) == (422, "idempotency_key_reused")
    assert len(running.call("GET", "/v1/jobs")[1]["items"]) == 1


def test_a_job_is_signed_and_the_wait_brings_the_envelope(server: Server) -> None:
    from rookhold_attestation import Policy, PrivateKey, PublicKey, verify_envelope

    prepared = server()
    key_file = prepared.home / "key.pem"
    PrivateKey.generate().save(key_file)
    prepared.environment["ROOKHOLD_ATTESTATION_KEY_FILE"] = str(key_file)
    running = prepared.start()
    public = running.call("GET", "/v1/attestation/public-key")[1]
    assert "not a trust anchor" in public["trust_notice"]
    status, job = running.call("POST", "/v1/jobs", {"language": "bash", "code": "echo signed"})
    assert status == 201
    path = f"/v1/jobs/{job['job_id']}"
    status, envelope = running.call("GET", f"{path}/attestation?wait_seconds=30")
    assert status == 200
    artifact = running.call("GET", f"{path}/result-artifact")[1]
    detail = running.call("GET", path)[1]
    assert artifact["stdout"] == "signed\n"
    assert artifact["receipt_sha256"] == detail["receipt_sha256"]
    assert detail["attestation"]["available"] is True
    verified = verify_envelope(
        json.dumps(envelope).encode(),
        artifact=json.dumps(artifact, separators=(",", ":"), ensure_ascii=False).encode(),
        keys=[PublicKey.from_pem(public["public_key_pem"])],
        policy=Policy(tenant="acme"),
    )
    assert verified.execution_id == job["job_id"]


def test_an_interpreter_that_is_missing_is_not_offered(server: Server) -> None:
    running = server(NODE="no-such-node").start()
    assert running.call("GET", "/v1/capabilities")[1]["languages"] == ["python", "bash"]
    status, body = running.call("POST", "/v1/jobs", {"language": "node", "code": "1"})
    assert (status, body["error"]["code"]) == (422, "runtime_unavailable")


def test_a_malformed_id_is_a_missing_job(server: Server) -> None:
    running = server().start()
    for job_id in ("%00", "x" * 5000, "%F0%9F%98%80", "%ff", "'--"):
        for path in ("", "/replay", "/result", "/attestation", "/result-artifact"):
            status, body = running.call("GET", f"/v1/jobs/{job_id}{path}")
            assert (status, body["error"]["code"]) == (404, "job_not_found")
        assert running.call("DELETE", f"/v1/jobs/{job_id}")[0] == 404
