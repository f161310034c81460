"""The API's description of itself, held against the routes, the codes and its own schemas."""

import base64
import hashlib
import json
import re
from typing import Any

import jsonschema
import msgspec
import pytest

from rookhold_attestation import PublicKey
from rookhold_server.http.app import ROUTES
from rookhold_server.http.openapi.examples import EXAMPLES, SUBMISSIONS
from rookhold_server.http.openapi.meaning import OPERATIONS
from rookhold_types.codes import ERRORS
from rookhold_types.events import check_chain
from rookhold_types.views import ReplayPage

# Codes that no described route answers: routing itself, guards that cannot be reached, and routes
# that are not there yet.
ELSEWHERE = {
    "not_found",
    "method_not_allowed",
    "missing_auth_context",
    "missing_tenant",
    "capability_unavailable",
}


@pytest.fixture
def document(gateway: Any) -> dict[str, Any]:
    answer = gateway.call("GET", "/openapi.json", key=None)
    assert answer.status == 200
    assert answer.header("content-type") == "application/json"
    described: dict[str, Any] = answer.json
    return described


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        operation["operationId"]: operation
        for methods in document["paths"].values()
        for operation in methods.values()
    }


def schema(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Make a schema of the document stand alone."""
    return {**part, "components": document["components"]}


def test_every_route_is_described_and_nothing_else(document: dict[str, Any]) -> None:
    routes = {path: sorted(methods) for path, methods in ROUTES.items()}
    assert {path: sorted(m.upper() for m in ms) for path, ms in document["paths"].items()} == routes
    assert {path: sorted(methods) for path, methods in OPERATIONS.items()} == routes
    assert len(operations(document)) == sum(len(methods) for methods in ROUTES.values())


def test_every_code_is_told_by_some_route_under_its_status(document: dict[str, Any]) -> None:
    told: set[str] = set()
    for operation in operations(document).values():
        for status, answer in operation["responses"].items():
            if int(status) < 400:
                continue
            parts = answer["content"]["application/json"]["schema"]["allOf"]
            codes = parts[1]["properties"]["error"]["properties"]["code"]["enum"]
            assert {ERRORS[code].status for code in codes} == {int(status)}
            told |= set(codes)
    assert told == set(ERRORS) - ELSEWHERE


def test_who_may_call_what_is_told(document: dict[str, Any]) -> None:
    for path, methods in ROUTES.items():
        for method, endpoint in methods.items():
            operation = document["paths"][path][method.lower()]
            if path == "/metrics":
                assert operation["security"] == [{"bearer_auth": []}]
            elif endpoint.scope is None:
                assert operation["security"] == []
                assert "401" not in operation["responses"]
            else:
                assert operation["x-scope"] == endpoint.scope
                assert {"401", "403", "429"} <= set(operation["responses"])
    assert document["security"] == [{"bearer_auth": []}]
    assert document["components"]["securitySchemes"]["bearer_auth"]["scheme"] == "bearer"


def test_every_schema_is_one_and_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for part in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(part)
    names = set(document["components"]["schemas"])
    references = re.findall(r'"#/components/schemas/([A-Za-z]+)"', json.dumps(document))
    assert set(references) <= names
    assert {"JobSpec", "Receipt", "WireEvent", "ErrorBody"} <= names


def test_the_examples_are_what_they_are_examples_of(document: dict[str, Any]) -> None:
    described = operations(document)
    for operation_id, example in EXAMPLES.items():
        success = next(iter(described[operation_id]["responses"].values()))
        content = success["content"]["application/json"]
        assert content["example"] == example
        jsonschema.validate(example, schema(document, content["schema"]))
    body = described["submitJob"]["requestBody"]["content"]["application/json"]
    assert body["examples"] == SUBMISSIONS
    for example in SUBMISSIONS.values():
        jsonschema.validate(example["value"], schema(document, body["schema"]))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"language": "python"}, schema(document, body["schema"]))
    unknown = {"language": "python", "code": "1", "unknown": 1}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(unknown, schema(document, body["schema"]))


def test_the_example_of_a_history_is_whole_and_of_the_key_is_one() -> None:
    page = msgspec.convert(EXAMPLES["replayEvents"], ReplayPage)
    checked = check_chain(EXAMPLES["getResult"]["job_id"], page.events)
    assert (checked.valid, checked.complete) == (True, True)
    key = EXAMPLES["getPublicKey"]
    assert PublicKey.from_pem(key["public_key_pem"]).key_id == key["key_id"]


def test_the_page_is_public_and_lets_nothing_in(gateway: Any) -> None:
    answer = gateway.call("GET", "/docs", key=None)
    assert answer.status == 200
    assert answer.header("content-type") == "text/html; charset=utf-8"
    text = answer.body.decode()
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = answer.header("content-security-policy")
    assert "default-src 'none'" in policy
    assert f"style-src 'sha256-{digest}'" in policy
    assert "<script" not in text
    assert not re.search(r'(src|href)="(?!#|/openapi\.json)', text)
    for header, value in (
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
    ):
        assert answer.header(header) == value
    for path in ROUTES:
        assert f"<code>{path}</code>" in text
    for anchor in re.findall(r'href="#([^"]+)"', text):
        assert f'id="{anchor}"' in text
