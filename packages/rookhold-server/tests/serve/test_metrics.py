"""The operator's metrics of a real server: the contract's lines O2 to O4."""

from __future__ import annotations

import http.client
import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from asking import Caller
from inside import inside
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from rookhold_server.http import observing
from rookhold_server.metrics.exposition import wants_openmetrics
from rookhold_store import StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MIB = 1024 * 1024
TOKEN = "the-token-of-an-operator"
FAMILIES = {
    "up": "gauge",
    "process_uptime_seconds": "gauge",
    "build_info": "gauge",
    "http_server_active_requests": "gauge",
    "http_server_requests": "counter",
    "http_server_request_duration_seconds": "histogram",
    "jobs_submitted": "counter",
    "jobs_completed": "counter",
    "executions_active": "gauge",
    "job_execution_duration_seconds": "histogram",
    "admission_rejections": "counter",
    "storage_operations": "counter",
    "storage_errors": "counter",
    "storage_operation_duration_seconds": "histogram",
    "storage_disk_refusals": "counter",
    "storage_charged_bytes": "gauge",
    "storage_quota_bytes": "gauge",
    "storage_disk_free_bytes": "gauge",
    "storage_disk_reserve_bytes": "gauge",
    "output_truncations": "counter",
    "recovered_jobs": "counter",
    "retention_runs": "counter",
    "retention_errors": "counter",
    "retention_jobs_deleted": "counter",
    "retention_events_deleted": "counter",
    "retention_last_success_timestamp_seconds": "gauge",
    "attestations": "counter",
    "attestation_retries": "counter",
    "attestation_outbox": "gauge",
    "ready": "gauge",
    "readiness_component": "gauge",
    "queue_depth": "gauge",
    "queue_capacity": "gauge",
    "capacity_used": "gauge",
    "capacity_limit": "gauge",
}
LABELS = {
    "version", "revision", "method", "route", "status_class", "language", "status", "scope",
    "reason", "operation", "kind", "outcome", "state", "component", "resource", "le",
}  # fmt: skip


def ask(
    process: Any, *, token: str | None = TOKEN, accept: str | None = None
) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(process.address, timeout=60)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    if accept is not None:
        headers["Accept"] = accept
    connection.request("GET", "/metrics", headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text


def samples(process: Any) -> dict[str, float]:
    """Every sample by its name and labels, as a text."""
    text = ask(process)[2]
    return {
        sample.name + str(sorted(sample.labels.items())): sample.value
        for family in plain(text)
        for sample in family.samples
    }


def of(values: dict[str, float], name: str, **labels: str) -> float:
    return values[f"rookhold_{name}{sorted(labels.items())}"]


def test_o3_every_family_and_series_is_there_from_the_start(server: Callable[..., Any]) -> None:
    process = server(METRICS_TOKEN=TOKEN).start()
    status, headers, text = ask(process)
    assert status == 200
    assert headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert headers["cache-control"] == "no-store"
    assert headers["vary"] == "accept"
    families = {family.name: family for family in plain(text)}
    assert {name: family.type for name, family in families.items()} == {
        f"rookhold_{name}": kind for name, kind in FAMILIES.items()
    }
    for family in families.values():
        assert family.documentation
        for sample in family.samples:
            assert set(sample.labels) <= LABELS
    values = samples(process)
    assert of(values, "jobs_completed_total", language="node", status="aborted") == 0
    assert of(values, "admission_rejections_total", scope="queue", reason="tenant_full") == 0
    assert of(values, "admission_rejections_total", scope="scheduler", reason="startup") == 0
    assert of(values, "queue_capacity") == 1024
    assert of(values, "capacity_limit", resource="submit_bodies") == 68
    assert of(values, "capacity_limit", resource="streams") == 128
    assert of(values, "ready") == 1
    before = set(values)
    process.call("POST", "/v1/jobs", {"language": "bash", "code": "echo"})
    process.call("GET", "/nowhere")
    assert set(samples(process)) == before


def test_o2_o4_what_happens_is_counted_and_names_nobody(server: Callable[..., Any]) -> None:
    process = server(METRICS_TOKEN=TOKEN, RETENTION_HOURS="1").start()
    ids = []
    for _ in range(3):
        status, job = process.call(
            "POST", "/v1/jobs", {"language": "bash", "code": "echo a"}, **{"Idempotency-Key": "k"}
        )
        assert status == 201
        ids.append(job["job_id"])
    process.call("GET", f"/v1/jobs/{ids[0]}/result?wait_seconds=30")
    flood = {"language": "bash", "code": "yes | head -c 3000000"}
    flooded = process.call("POST", "/v1/jobs", flood)[1]["job_id"]
    process.call("GET", f"/v1/jobs/{flooded}/result?wait_seconds=30")
    process.call("POST", "/v1/jobs", key="a-key-of-nobody")
    process.call("GET", "/v1/jobs/unknown")
    values = samples(process)
    assert of(values, "jobs_submitted_total", language="bash") == 2
    assert of(values, "jobs_completed_total", language="bash", status="succeeded") == 2
    name = "job_execution_duration_seconds_count"
    assert of(values, name, language="bash", status="succeeded") == 2
    assert of(values, "executions_active") == 0
    assert of(values, "output_truncations_total", kind="stdout") == 1
    assert of(values, "output_truncations_total", kind="stderr") == 0
    requests = "http_server_requests_total"
    assert of(values, requests, method="POST", route="/v1/jobs", status_class="2xx") == 4
    assert of(values, requests, method="POST", route="/v1/jobs", status_class="4xx") == 1
    route = "/v1/jobs/{job_id}"
    assert of(values, requests, method="GET", route=route, status_class="4xx") == 1
    for operation, least in (("accept", 2), ("start", 2), ("finalize", 2), ("read", 1)):
        assert of(values, "storage_operations_total", operation=operation) >= least
        assert of(values, "storage_errors_total", operation=operation) == 0
    assert of(values, "retention_runs_total") == 1
    assert of(values, "retention_last_success_timestamp_seconds") > 1e9
    assert of(values, "http_server_active_requests") == 1  # this one
    text = ask(process)[2]
    for secret in (*ids, "acme", TOKEN, "a-key-of"):
        assert secret not in text


def test_what_an_earlier_process_left_is_counted_once(server: Callable[..., Any]) -> None:
    first = server(WORKERS="2", TENANT_CONCURRENCY="1").start()
    jobs = [
        first.call("POST", "/v1/jobs", {"language": "bash", "code": "sleep 60"})[1]["job_id"]
        for _ in range(2)
    ]
    for _ in range(500):
        if first.call("GET", f"/v1/jobs/{jobs[0]}")[1]["status"] == "running":
            break
    first.popen.kill()
    first.ended()
    again = server(METRICS_TOKEN=TOKEN).start()
    values = samples(again)
    assert of(values, "recovered_jobs_total", kind="interrupted_running") == 1
    assert of(values, "recovered_jobs_total", kind="restored_queued") == 1
    assert of(values, "jobs_completed_total", language="bash", status="error") == 1
    again.call("DELETE", f"/v1/jobs/{jobs[1]}")


def test_refusals_for_want_of_room_count_where_they_belong(server: Callable[..., Any]) -> None:
    process = server(METRICS_TOKEN=TOKEN, TENANT_QUEUE_CAPACITY="1", WORKERS="1").start()
    answers = [
        process.call("POST", "/v1/jobs", {"language": "bash", "code": "sleep 30"})[0]
        for _ in range(6)
    ]
    refused = answers.count(429)
    assert refused >= 3
    values = samples(process)
    name = "admission_rejections_total"
    assert of(values, name, scope="queue", reason="tenant_full") == refused
    assert of(values, name, scope="queue", reason="global_full") == 0
    for job in process.call("GET", "/v1/jobs")[1]["items"]:
        process.call("DELETE", f"/v1/jobs/{job['job_id']}")


def test_a_job_refused_for_the_disk_is_counted_and_how_much_is_left_is_told(
    server: Callable[..., Any],
) -> None:
    process = server(METRICS_TOKEN=TOKEN, STORAGE_FREE_RESERVE_MB="1048576").start()
    before = samples(process)
    for _ in range(2):
        status, refusal = process.call("POST", "/v1/jobs", {"language": "bash", "code": "true"})
        assert (status, refusal["error"]["code"]) == (507, "storage_reserve")
    values = samples(process)
    name = "storage_disk_refusals_total"
    assert of(before, name, reason="reserve") == 0
    assert of(values, name, reason="reserve") == 2
    assert of(values, name, reason="full") == 0
    assert of(values, "storage_disk_reserve_bytes") == 1048576 * MIB
    assert 0 < of(values, "storage_disk_free_bytes") < 1048576 * MIB
    assert of(values, "storage_quota_bytes") == 16384 * MIB
    assert of(values, "storage_charged_bytes") == 0
    assert {
        key for key, value in values.items() if "admission_rejections" in key and value
    } == set()


def test_a_storage_that_does_not_answer_does_not_hide_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "STORAGE_SECONDS", 0.05)

    async def never() -> tuple[int, int]:
        await anyio.sleep_forever()
        raise AssertionError

    async def fails() -> tuple[int, int]:
        raise StorageUnavailableError("no")

    with (
        inside(tmp_path / "home", METRICS_TOKEN=TOKEN) as here,
        closing(Caller(here.address, TOKEN)) as operator,
    ):
        for counts in (never, fails):
            monkeypatch.setattr(here.gateway.engine, "outbox_counts", counts)
            answer = operator.get("/metrics")
            assert answer.status == 200
            assert b"rookhold_up 1.0" in answer.body


@pytest.mark.parametrize(
    ("accept", "prefers"),
    [
        (None, False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8, */*;q=0.1", True),
        ("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.5", True),
        ("application/openmetrics-text;q=0.4,text/plain;version=0.0.4;q=0.5", False),
        ("application/openmetrics-text;version=0.0.1", False),
        ("application/openmetrics-text;q=0", False),
        (",;q=,", False),
    ],
)
def test_o3_the_format_is_the_one_that_is_preferred(accept: str | None, prefers: bool) -> None:
    assert wants_openmetrics(accept) is prefers


def test_o3_openmetrics_ends_as_it_must(server: Callable[..., Any]) -> None:
    process = server(METRICS_TOKEN=TOKEN).start()
    status, headers, text = ask(process, accept="application/openmetrics-text")
    assert status == 200
    wanted = "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert headers["content-type"] == wanted
    assert text.endswith("# EOF\n")
    names = {family.name for family in openmetrics(text)}
    assert names == {f"rookhold_{name}" for name in FAMILIES}
    assert "# EOF" not in ask(process)[2]


def test_o3_nobody_but_the_operator_may_look(server: Callable[..., Any]) -> None:
    process = server(METRICS_TOKEN=TOKEN).start()
    for token in (None, "a-key-of-acme-for-tests", TOKEN + "x", TOKEN[:-1]):
        status, headers, text = ask(process, token=token)
        assert status == 401
        assert '"invalid_metrics_token"' in text
        assert headers["www-authenticate"] == 'Bearer realm="rookhold-metrics"'
        assert headers["cache-control"] == "no-store"
    assert process.call("GET", "/v1/whoami", key=TOKEN)[0] == 401
    process.stop()
    without = server().start()
    status, _, text = ask(without)
    assert (status, '"metrics_disabled"' in text) == (404, True)


@pytest.mark.parametrize(
    ("token", "why"),
    [("short", "16 visible"), ("a-key-of-acme-for-tests", "credential"), ("x" * 20 + "\x7f", "16")],
)
def test_a_token_that_will_not_do_refuses_the_start(
    server: Callable[..., Any], token: str, why: str
) -> None:
    process = server(METRICS_TOKEN=token)
    assert process.run() == 1
    assert "ROOKHOLD_METRICS_TOKEN" in process.log
    assert why in process.log
    assert not re.search(re.escape(token), process.log)
