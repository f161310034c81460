"""The description at `/openapi.json` has everything that was promised: routes, codes and fields.

The tables say it a second time, on purpose: the document is made from the code, and this is not.
`tests/http/test_openapi.py` holds the document against the code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asking import Caller

JOB = "/v1/jobs/{job_id}"
SUBMIT, READ, CANCEL = "jobs:submit", "jobs:read", "jobs:cancel"
SERVICE, METRICS, PUBLIC, OPERATOR = "service:read", "metrics:read", "", "operator"

# Method, path, what it takes, which success it answers.
ROUTES: dict[tuple[str, str], tuple[str, set[int]]] = {
    ("post", "/v1/jobs"): (SUBMIT, {201}),
    ("get", "/v1/jobs"): (READ, {200}),
    ("get", JOB): (READ, {200}),
    ("delete", JOB): (CANCEL, {200}),
    ("get", f"{JOB}/replay"): (READ, {200}),
    ("get", f"{JOB}/result"): (READ, {200, 202}),
    ("get", f"{JOB}/attestation"): (READ, {200}),
    ("get", f"{JOB}/result-artifact"): (READ, {200}),
    ("post", f"{JOB}/stream-ticket"): (READ, {200}),
    ("get", f"{JOB}/stream"): (READ, {101}),
    ("get", f"{JOB}/events"): (READ, {200}),
    ("get", "/v1/metrics"): (METRICS, {200}),
    ("get", "/v1/status"): (SERVICE, {200}),
    ("get", "/v1/capabilities"): (SERVICE, {200}),
    ("get", "/v1/attestation/public-key"): (SERVICE, {200}),
    ("get", "/v1/whoami"): (SERVICE, {200}),
    ("get", "/whoami"): (SERVICE, {200}),
    ("get", "/healthz"): (PUBLIC, {200}),
    ("get", "/readyz"): (PUBLIC, {200}),
    ("get", "/metrics"): (OPERATOR, {200}),
    ("get", "/.well-known/oauth-protected-resource"): (PUBLIC, {200}),
    ("get", "/openapi.json"): (PUBLIC, {200}),
    ("get", "/docs"): (PUBLIC, {200}),
}

S, L, D, C, R = (
    ("post", "/v1/jobs"),
    ("get", "/v1/jobs"),
    ("get", JOB),
    ("delete", JOB),
    ("get", f"{JOB}/replay"),
)
RESULT, ENVELOPE, ARTIFACT, TICKET, STREAM, EVENTS = (
    ("get", f"{JOB}/result"),
    ("get", f"{JOB}/attestation"),
    ("get", f"{JOB}/result-artifact"),
    ("post", f"{JOB}/stream-ticket"),
    ("get", f"{JOB}/stream"),
    ("get", f"{JOB}/events"),
)
READY, OPERATORS = ("get", "/readyz"), ("get", "/metrics")
GUARDED = [route for route, (takes, _) in ROUTES.items() if takes not in {PUBLIC, OPERATOR}]
OF_A_JOB = [D, C, R, RESULT, ENVELOPE, ARTIFACT, TICKET, STREAM, EVENTS]
LARGE = [D, R, RESULT, ENVELOPE, ARTIFACT]
WAITS = [RESULT, ENVELOPE, ARTIFACT]

# Status, may it be tried again, the codes, and every operation that answers them.
CODES: list[tuple[int, bool, str, list[tuple[str, str]]]] = [
    (401, False, "missing_api_key invalid_api_key invalid_authorization", GUARDED),
    (401, False, "invalid_stream_ticket", [STREAM, EVENTS]),
    (403, False, "insufficient_scope", GUARDED),
    (429, True, "rate_limit_exceeded", GUARDED),
    (400, False, "invalid_json invalid_idempotency_key empty_code invalid_input_path", [S]),
    (400, False, "duplicate_input_path invalid_input_base64 invalid_output_path", [S]),
    (400, False, "duplicate_output_path network_opt_in_unsupported", [S]),
    (400, False, "unsupported_language", [S, L]),
    (408, True, "request_body_timeout", [S]),
    (413, False, "request_body_too_large code_too_large stdin_too_large", [S]),
    (413, False, "too_many_input_files input_file_too_large input_files_too_large", [S]),
    (413, False, "too_many_output_files", [S]),
    (415, False, "unsupported_media_type", [S]),
    (422, False, "idempotency_key_reused minimum_isolation_unsatisfied runtime_unavailable", [S]),
    (422, False, "runtime_pack_unavailable runtime_pack_requires_isolation", [S]),
    (429, True, "tenant_submit_body_capacity tenant_queue_saturated tenant_storage_quota", [S]),
    (503, True, "submit_body_capacity queue_saturated storage_capacity scheduler_unavailable", [S]),
    (507, True, "storage_reserve", [S]),
    (503, True, "startup_recovery", [S, READY]),
    (503, True, "shutting_down", [S, *LARGE, TICKET, STREAM, EVENTS, READY]),
    (400, False, "unknown_query_parameter", [L, R, ENVELOPE, ARTIFACT]),
    (400, False, "invalid_limit", [L, R]),
    (400, False, "invalid_cursor invalid_status", [L]),
    (400, False, "invalid_event_cursor", [R, STREAM, EVENTS]),
    (400, False, "invalid_wait_seconds", WAITS),
    (404, False, "job_not_found", OF_A_JOB),
    (429, True, "tenant_response_capacity", LARGE),
    (503, True, "response_capacity", LARGE),
    (429, True, "tenant_result_wait_capacity", WAITS),
    (503, True, "result_wait_capacity", WAITS),
    (429, True, "tenant_stream_capacity", [STREAM, EVENTS]),
    (503, True, "stream_capacity", [STREAM, EVENTS]),
    (426, False, "upgrade_required", [STREAM]),
    (404, True, "attestation_pending", [ENVELOPE, ARTIFACT]),
    (404, False, "attestation_unavailable", [ENVELOPE]),
    (404, False, "result_artifact_unavailable", [ARTIFACT]),
    (404, False, "attestations_disabled", [("get", "/v1/attestation/public-key")]),
    (404, False, "oauth_not_configured", [("get", "/.well-known/oauth-protected-resource")]),
    (404, False, "metrics_disabled", [OPERATORS]),
    (401, False, "invalid_metrics_token", [OPERATORS]),
    # More than was promised: whatever asks the store says so when it has no answer.
    (503, True, "storage_unavailable", [READY, L, *OF_A_JOB, ("get", "/v1/metrics"), OPERATORS]),
    (500, True, "internal_error", list(ROUTES)),
]

ROW = "job_id tenant language status created_at_ms started_at_ms finished_at_ms exit_code"
POSTURE = (
    "backend isolation_class isolated private_rootfs dedicated_bootstrap seccomp networking "
    "controls limit_enforcement"
)
# Every member of a body, and of what is in it, by the path to it in the schema of the operation.
FIELDS: list[tuple[tuple[str, str], str, str]] = [
    (S, "", "job_id status stream_url replay_url stream_ticket_url"),
    (L, "", "items next_cursor"),
    (L, "items.*", ROW),
    (
        D,
        "",
        f"{ROW} requested_spec effective_spec execution_policy receipt receipt_sha256 attestation "
        "queue",
    ),
    (D, "queue", "position estimated_wait_ms"),
    (
        D,
        "effective_spec",
        "language code stdin limits requirements isolation_class files outputs runtime",
    ),
    (
        D,
        "effective_spec.limits",
        "wall_seconds cpu_seconds mem_mb max_pids max_file_mb allow_network",
    ),
    (D, "effective_spec.files.*", "path content_base64"),
    (
        D,
        "execution_policy",
        "sandbox isolation_class bootstrap_ready isolated seccomp network_allowed networking "
        "private_rootfs dedicated_bootstrap controls limit_enforcement runtime_version "
        "runtime_sha256 rootfs_sha256 config_sha256",
    ),
    (D, "execution_policy.limit_enforcement", "wall cpu mem pids file"),
    (
        D,
        "attestation",
        "available state failure tenant key_id receipt_sha256 result_media_type result_sha256 "
        "result_size_bytes envelope_sha256 envelope_size_bytes envelope_url result_artifact_url",
    ),
    (C, "", "job cancellation_requested already_terminal"),
    (C, "job", ROW),
    (R, "", "events next_cursor complete"),
    (R, "events.*", "seq ts_ms kind data prev_hash event_hash hash_version"),
    (
        RESULT,
        "",
        "job_id status exit_code duration_ms stdout stderr stdout_base64 stderr_base64 truncated "
        "violations artifacts",
    ),
    (RESULT, "violations.*", "rule detail"),
    (RESULT, "artifacts.*", "path content_base64 size_bytes sha256"),
    (TICKET, "", "ticket stream_url expires_at_ms"),
    (
        ("get", "/v1/status"),
        "",
        "version sandbox uptime_seconds environment execution scheduler storage_ready",
    ),
    (
        ("get", "/v1/status"),
        "scheduler",
        "workers queue_capacity queue_depth running shutting_down",
    ),
    (("get", "/v1/status"), "execution", POSTURE),
    (
        ("get", "/v1/capabilities"),
        "",
        "version languages execution limits features attestations runtime_packs",
    ),
    (("get", "/v1/capabilities"), "execution", POSTURE),
    (
        ("get", "/v1/capabilities"),
        "limits",
        "wall_seconds_max cpu_seconds_max mem_mb_max concurrent_mem_mb_max pids_max file_mb_max "
        "output_lines_max output_bytes_per_stream_max output_record_bytes_max code_bytes_max "
        "stdin_bytes_max input_files_max input_file_bytes_max input_bytes_max output_files_max "
        "output_file_bytes_max output_bytes_max",
    ),
    (
        ("get", "/v1/capabilities"),
        "features",
        "result_wait cancellation event_cursors stream_tickets receipts signed_attestations "
        "attestation_wait",
    ),
    (
        ("get", "/v1/capabilities"),
        "attestations",
        "enabled algorithm envelope_format key_id public_key_url",
    ),
    (
        ("get", "/v1/attestation/public-key"),
        "",
        "algorithm key_id public_key_pem trust_notice",
    ),
    *(
        (
            ("get", path),
            "",
            "tenant principal_id credential_id auth_method scopes expires_at_ms",
        )
        for path in ("/v1/whoami", "/whoami")
    ),
    (
        ("get", "/.well-known/oauth-protected-resource"),
        "",
        "resource authorization_servers bearer_methods_supported scopes_supported resource_name",
    ),
    (("get", "/healthz"), "", "ok"),
    (("get", "/readyz"), "", "ok"),
]
REQUEST: list[tuple[str, str]] = [
    ("", "language code stdin limits requirements files outputs runtime"),
    ("limits", "wall_seconds cpu_seconds mem_mb max_pids max_file_mb allow_network"),
    ("requirements", "minimum_isolation"),
    ("files.*", "path content_base64"),
]
# Where it is, its bounds and its default.
PARAMETERS: dict[tuple[str, str], dict[str, tuple[str, object, object, object]]] = {
    S: {"Idempotency-Key": ("header", None, None, None)},
    L: {
        "limit": ("query", 1, 500, 50),
        "cursor": ("query", None, None, None),
        "status": ("query", None, None, None),
        "language": ("query", None, None, None),
    },
    R: {"after": ("query", 0, 2**63 - 1, 0), "limit": ("query", 1, 5000, 1000)},
    RESULT: {"wait_seconds": ("query", 0, 300, 60)},
    ENVELOPE: {"wait_seconds": ("query", 0, 30, 0)},
    ARTIFACT: {"wait_seconds": ("query", 0, 30, 0)},
    STREAM: {
        "after": ("query", 0, 2**63 - 1, 0),
        "ticket": ("query", None, None, None),
    },
    EVENTS: {
        "after": ("query", 0, 2**63 - 1, 0),
        "ticket": ("query", None, None, None),
        "Last-Event-ID": ("header", 0, 2**63 - 1, None),
    },
}
MEDIA = {
    ENVELOPE: "application/vnd.dsse.envelope.v1+json",
    ARTIFACT: "application/vnd.coop.execution-result.v1+json",
    EVENTS: "text/event-stream",
    ("get", "/v1/metrics"): "text/plain",
    OPERATORS: "text/plain",
    ("get", "/docs"): "text/html",
}
HEADERS = {
    S: {"location", "idempotency-replayed"},
    ENVELOPE: {"x-content-sha256"},
    ARTIFACT: {"x-content-sha256"},
}


class Description:
    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def operation(self, route: tuple[str, str]) -> dict[str, Any]:
        method, path = route
        described: dict[str, Any] = self.document["paths"][path][method]
        return described

    def operations(self) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                yield (method, path), operation

    def success(self, route: tuple[str, str]) -> dict[str, Any]:
        answers = self.operation(route)["responses"]
        described: dict[str, Any] = answers[min(answers)]
        return described

    def members(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        """Return the properties at the end of a path; `*` is an item of a list."""
        for part in ["", *filter(None, path.split("."))]:
            schema = self.resolved(schema)
            if part == "*":
                schema = schema["items"]
            elif part:
                schema = schema["properties"][part]
        properties: dict[str, Any] = self.resolved(schema)["properties"]
        return properties

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        while "$ref" in schema or "anyOf" in schema:
            if "anyOf" in schema:
                (schema,) = (each for each in schema["anyOf"] if each != {"type": "null"})
            else:
                name = schema["$ref"].rpartition("/")[2]
                schema = self.document["components"]["schemas"][name]
        return schema


@pytest.fixture
def described(ours: Caller) -> Description:
    return Description(ours.get("/openapi.json").json)


def test_every_route_is_there_with_what_it_takes_and_how_it_succeeds(
    described: Description,
) -> None:
    assert {route for route, _ in described.operations()} == set(ROUTES)
    for route, operation in described.operations():
        takes, successes = ROUTES[route]
        answers = {int(status) for status in operation["responses"]}
        assert {status for status in answers if status < 400} == successes, route
        assert operation.get("x-scope", takes) == takes
        expected: list[dict[str, list[str]]] = [{"bearer_auth": []}]
        if takes == PUBLIC:
            expected = []
        elif route in (STREAM, EVENTS):
            expected.append({"stream_ticket": []})
        assert operation.get("security", [{"bearer_auth": []}]) == expected, route


def test_every_code_is_there_on_every_route_that_answers_it_and_on_no_other(
    described: Description,
) -> None:
    told: dict[tuple[str, int], set[tuple[str, str]]] = {}
    for route, operation in described.operations():
        for status, answer in operation["responses"].items():
            if int(status) < 400:
                continue
            schema = answer["content"]["application/json"]["schema"]
            codes = schema["allOf"][1]["properties"]["error"]["properties"]["code"]["enum"]
            for code in codes:
                told.setdefault((code, int(status)), set()).add(route)
    expected = {
        (code, status): set(routes) for status, _, codes, routes in CODES for code in codes.split()
    }
    assert told == expected


def test_what_may_be_tried_again_says_when(described: Description) -> None:
    for status, retryable, codes, routes in CODES:
        for route in routes:
            answer = described.operation(route)["responses"][str(status)]
            if retryable and status != 500:
                assert "retry-after" in answer["headers"], (codes, route)


@pytest.mark.parametrize(("route", "path", "fields"), FIELDS)
def test_every_field_is_there_and_no_other(
    described: Description, route: tuple[str, str], path: str, fields: str
) -> None:
    (content,) = described.success(route)["content"].values()
    assert set(described.members(content["schema"], path)) == set(fields.split())


@pytest.mark.parametrize(("path", "fields"), REQUEST)
def test_every_member_of_a_submission_is_there_and_no_other_is_taken(
    described: Description, path: str, fields: str
) -> None:
    body = described.operation(S)["requestBody"]["content"]["application/json"]
    assert set(described.members(body["schema"], path)) == set(fields.split())


def test_every_parameter_is_there_with_its_bounds_and_its_default(described: Description) -> None:
    for route, operation in described.operations():
        named = {
            each["name"]: (
                each["in"],
                each["schema"].get("minimum"),
                each["schema"].get("maximum"),
                each["schema"].get("default"),
            )
            for each in operation["parameters"]
            if each["in"] != "path"
        }
        assert named == PARAMETERS.get(route, {}), route
        in_path = [each["name"] for each in operation["parameters"] if each["in"] == "path"]
        assert in_path == (["job_id"] if "{job_id}" in route[1] else [])


def test_every_kind_of_body_and_every_header_is_there(described: Description) -> None:
    for route, operation in described.operations():
        success = described.success(route)
        if route != STREAM:
            (kind,) = success["content"]
            assert kind == MEDIA.get(route, "application/json"), route
        assert HEADERS.get(route, set()) <= set(success["headers"]), route
        for status, answer in operation["responses"].items():
            assert answer["headers"]["x-request-id"]["required"], (route, status)
            if ROUTES[route][0] not in {PUBLIC, OPERATOR}:
                assert answer["headers"]["cache-control"]["required"], (route, status)
            if status in {"401", "403"}:
                assert answer["headers"]["www-authenticate"]["required"], (route, status)


def test_links_lead_to_operations_by_parameters_that_they_have(described: Description) -> None:
    by_id = {operation["operationId"]: operation for _, operation in described.operations()}
    linked = set()
    for operation in by_id.values():
        for answer in operation["responses"].values():
            for link in answer.get("links", {}).values():
                linked.add(link["operationId"])
                names = {each["name"] for each in by_id[link["operationId"]]["parameters"]}
                assert set(link["parameters"]) <= names
    ids = {described.operation(route)["operationId"] for route in OF_A_JOB if route != STREAM}
    assert ids <= linked


def test_what_a_server_really_answers_is_what_the_schemas_say(
    described: Description, ours: Caller
) -> None:
    """Each kind of body once; schemathesis does it at length."""
    job_id = ours.ran("bash", "echo 1 > output/a", outputs=["output/a"]).job_id
    ours.call("DELETE", f"/v1/jobs/{job_id}")
    for route in ROUTES:
        method, path = route
        if method == "post" or MEDIA.get(route) or route == STREAM:
            continue
        answer = ours.call(method.upper(), path.replace("{job_id}", job_id))
        responses = described.operation(route)["responses"]
        content = responses[str(answer.status)]["content"]["application/json"]
        schema = {**content["schema"], "components": described.document["components"]}
        jsonschema.validate(answer.json, schema)
