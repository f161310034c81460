"""Traces and log lines of a real server: what a collector and a reader of the log get to see."""

from __future__ import annotations

import gzip
import http.server
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
SECONDS = 60


class Collector(http.server.ThreadingHTTPServer):
    """Keeps every span that is sent to it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Take)
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.arrived = threading.Condition()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def named(self, name: str, count: int = 1) -> list[Any]:
        """Wait for so many spans of a name."""
        end = time.monotonic() + SECONDS
        with self.arrived:
            while len(found := [span for span in self.spans if span.name == name]) < count:
                assert self.arrived.wait(max(0.0, end - time.monotonic())), self.spans
            return found


class _Take(http.server.BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        taken = ExportTraceServiceRequest.FromString(body)
        with self.server.arrived:
            self.server.requests.append((self.path, dict(self.headers)))
            for group in taken.resource_spans:
                self.server.resources.append(facts(group.resource))
                for scope in group.scope_spans:
                    self.server.spans.extend(scope.spans)
            self.server.arrived.notify_all()
        self.send_response(200)
        self.end_headers()

    def log_request(self, *arguments: object) -> None:
        pass  # by default it writes to stderr


def facts(of: Any) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in of.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield listening
        listening.shutdown()
        thread.join()


def test_requests_and_jobs_are_told_as_traces_that_name_nobody(
    server: Callable[..., Any], collector: Collector
) -> None:
    process = server(OTEL_ENDPOINT=collector.address, OTEL_HEADERS="x-team=a b,X-Key=secret")
    process.environment |= {
        "OTEL_SDK_DISABLED": "true",
        "OTEL_RESOURCE_ATTRIBUTES": "from=elsewhere",
        "OTEL_SERVICE_NAME": "elsewhere",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-other=1",
        "HTTP_PROXY": "http://127.0.0.1:9",
    }
    process.start()
    spec = {"language": "bash", "code": "echo a-word-of-the-job"}
    caller = {
        "traceparent": f"00-{TRACE}-{SPAN}-01",
        "tracestate": "vendor=1",
        "baggage": "user=somebody",
    }
    status, job, headers = process.exchange("POST", "/v1/jobs", spec, **caller)
    assert status == 201
    assert not {"traceparent", "tracestate", "baggage"} & {name.lower() for name in headers}
    job_id, request_id = job["job_id"], headers["x-request-id"]
    process.call("GET", f"/v1/jobs/{job_id}/result?wait_seconds=30")
    process.call("GET", "/v1/jobs/unknown")

    [submission] = collector.named("POST /v1/jobs")
    assert submission.parent_span_id == b""
    assert submission.trace_id.hex() != TRACE
    [link] = submission.links
    assert (link.trace_id.hex(), link.span_id.hex()) == (TRACE, SPAN)
    assert facts(link) == {"w3c.tracestate": "vendor=1"}
    assert facts(submission) == {
        "http.request.method": "POST",
        "http.route": "/v1/jobs",
        "http.response.status_code": 201,
        "rookhold.request_id": request_id,
    }
    [ended] = collector.named("job")
    assert ended.parent_span_id == b""
    assert [each.span_id for each in ended.links] == [submission.span_id]
    assert facts(ended) == {
        "rookhold.job_id": job_id,
        "rookhold.language": "bash",
        "rookhold.status": "succeeded",
    }
    [execution] = collector.named("execute")
    assert (execution.trace_id, execution.parent_span_id) == (ended.trace_id, ended.span_id)
    assert execution.end_time_unix_nano <= ended.end_time_unix_nano
    [missed] = collector.named("GET /v1/jobs/{job_id}")
    assert facts(missed)["rookhold.code"] == "job_not_found"
    assert missed.status.code == 0, "a refusal is no fault of ours"

    path, sent = collector.requests[0]
    assert path == "/v1/traces"
    lower = {name.lower(): value for name, value in sent.items()}
    assert (lower["x-team"], lower["x-key"]) == ("a b", "secret")
    assert "x-other" not in lower
    assert collector.resources[0]["service.name"] == "rookhold"
    assert "from" not in collector.resources[0]
    assert process.stop() == 0
    told = str(collector.spans)
    for private in ("acme", "a-word-of-the-job", "a-key-of", "somebody", str(process.home)):
        assert private not in told


def test_every_span_is_handed_on_before_the_end(
    server: Callable[..., Any], collector: Collector
) -> None:
    process = server(OTEL_ENDPOINT=collector.address).start()
    for _ in range(5):
        process.call("GET", "/v1/whoami")
    assert process.stop() == 0
    assert len(collector.named("GET /v1/whoami", 5)) == 5


def test_a_collector_that_is_away_changes_nothing(server: Callable[..., Any]) -> None:
    secret = "x-key=a-secret-of-the-collector"
    process = server(OTEL_ENDPOINT="http://127.0.0.1:9", OTEL_HEADERS=secret).start()
    spec = {"language": "bash", "code": "echo"}
    for _ in range(3):
        job = process.call("POST", "/v1/jobs", spec)[1]["job_id"]
        result = process.call("GET", f"/v1/jobs/{job}/result?wait_seconds=30")[1]
        assert result["status"] == "succeeded"
    began = time.monotonic()
    assert process.stop() == 0
    assert time.monotonic() - began < 30
    assert "a-secret-of-the-collector" not in process.log


def test_every_line_of_a_request_bears_its_id_and_every_line_of_a_job_the_jobs(
    server: Callable[..., Any],
) -> None:
    process = server(LOG_FORMAT="json", LOG_LEVEL="debug").start()
    caller = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    spec = {"language": "bash", "code": "echo"}
    _, job, headers = process.exchange("POST", "/v1/jobs", spec, **caller)
    process.call("GET", f"/v1/jobs/{job['job_id']}/result?wait_seconds=30")
    process.call("POST", "/v1/jobs", {"language": "fortran", "code": "stop"})
    process.stop()
    lines = [json.loads(line) for line in process.log.splitlines()]
    requests = [line for line in lines if line["message"] == "request"]
    assert len(requests) == 3
    assert all({"request_id", "trace_id", "route", "status"} <= set(line) for line in requests)
    assert len({line["request_id"] for line in requests}) == 3
    [first] = [line for line in requests if line["request_id"] == headers["x-request-id"]]
    assert (first["job_id"], first["caller_trace_id"]) == (job["job_id"], TRACE)
    assert first["trace_id"] != TRACE
    jobs = [line for line in lines if line["message"] == "job ended"]
    assert [(line["job_id"], line["status"]) for line in jobs] == [(job["job_id"], "succeeded")]
    assert "request_id" not in jobs[0]
