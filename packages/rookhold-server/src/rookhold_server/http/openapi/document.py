"""The OpenAPI 3.1 document, made of the routes, the table of meanings and the types in use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from rookhold_server.http.openapi.examples import EXAMPLES, SUBMISSIONS
from rookhold_server.http.openapi.headers import failure_headers, success_headers
from rookhold_server.http.openapi.links import LINKS
from rookhold_server.http.openapi.meaning import JSON, OPERATIONS, Answer, Operation
from rookhold_server.http.openapi.rules import apply_rules
from rookhold_types.codes import ERRORS
from rookhold_types.events import WireEvent
from rookhold_types.receipts import Receipt
from rookhold_types.views import ErrorBody

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rookhold_server.http.gate import Endpoint

_SCHEMAS: Final = "#/components/schemas/{name}"
_GUARDED: Final = (
    "missing_api_key",
    "invalid_api_key",
    "invalid_authorization",
    "insufficient_scope",
    "rate_limit_exceeded",
)
_BEARER: Final = "bearer_auth"
_TICKET: Final = "stream_ticket"


def build(routes: Mapping[str, Mapping[str, Endpoint]], version: str) -> dict[str, Any]:
    """Describe `routes`; KeyError for one that has no meaning in the table."""
    described = [
        (path, method, endpoint, OPERATIONS[path][method])
        for path, methods in routes.items()
        for method, endpoint in methods.items()
    ]
    refer, components = _types(operation for *_, operation in described)
    paths: dict[str, Any] = {}
    for path, method, endpoint, operation in described:
        paths.setdefault(path, {})[method.lower()] = _operation(path, endpoint, operation, refer)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rookhold",
            "version": version,
            "description": "Runs short untrusted jobs in isolation and keeps evidence of them.",
        },
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "security": [{_BEARER: []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                _BEARER: {"type": "http", "scheme": "bearer"},
                _TICKET: {"type": "apiKey", "in": "query", "name": "ticket"},
            },
        },
    }


def _types(
    operations: Iterable[Operation],
) -> tuple[Mapping[type, Mapping[str, Any]], dict[str, Any]]:
    types: dict[type, None] = {ErrorBody: None, WireEvent: None, Receipt: None}
    for operation in operations:
        if operation.request is not None:
            types[operation.request] = None
        types |= {a.body: None for a in operation.answers if isinstance(a.body, type)}
    schemas, components = msgspec.json.schema_components(types, ref_template=_SCHEMAS)
    apply_rules(components)
    # A receipt is handed on as it is stored; what it holds is known all the same.
    detail = components["JobDetail"]["properties"]
    detail["receipt"] = {
        "anyOf": [{"$ref": _SCHEMAS.format(name="Receipt")}, {"type": "null"}],
        "default": None,
    }
    return dict(zip(types, schemas, strict=True)), components


def _operation(
    path: str, endpoint: Endpoint, operation: Operation, refer: Mapping[type, Mapping[str, Any]]
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.operation_id,
        "summary": operation.summary,
        "parameters": [*_path_parameters(path), *_parameters(operation)],
        "responses": _responses(endpoint, operation, refer),
    }
    if operation.request is not None:
        described["requestBody"] = {
            "required": True,
            "content": {JSON: {"schema": refer[operation.request], "examples": SUBMISSIONS}},
        }
    if endpoint.scope is None:
        described["security"] = [{_BEARER: []}] if operation.operator else []
    else:
        described["x-scope"] = endpoint.scope.value
        if operation.ticket:
            described["security"] = [{_BEARER: []}, {_TICKET: []}]
    return described


def _path_parameters(path: str) -> list[dict[str, Any]]:
    if "{job_id}" not in path:
        return []
    return [
        {
            "name": "job_id",
            "in": "path",
            "required": True,
            "description": "Anything but an id of your own jobs is `job_not_found`.",
            "schema": {"type": "string"},
        }
    ]


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": parameter.name,
            "in": parameter.place,
            "required": False,
            "description": parameter.description,
            "schema": parameter.schema,
        }
        for parameter in operation.parameters
    ]


def _responses(
    endpoint: Endpoint, operation: Operation, refer: Mapping[type, Mapping[str, Any]]
) -> dict[str, Any]:
    responses = {
        str(answer.status): _success(endpoint, operation, answer, refer)
        for answer in operation.answers
    }
    if operation.operation_id in LINKS:
        first = responses[str(operation.answers[0].status)]
        first["links"] = LINKS[operation.operation_id]
    guards = () if endpoint.scope is None else _GUARDED
    by_status: dict[int, list[str]] = {}
    for code in (*guards, *operation.codes, "internal_error"):
        by_status.setdefault(ERRORS[code].status, []).append(code)
    for status, codes in sorted(by_status.items()):
        responses[str(status)] = _failure(endpoint, status, codes, refer)
    return responses


def _success(
    endpoint: Endpoint,
    operation: Operation,
    answer: Answer,
    refer: Mapping[type, Mapping[str, Any]],
) -> dict[str, Any]:
    described: dict[str, Any] = {
        "description": answer.description,
        "headers": success_headers(endpoint, answer),
    }
    if answer.status == 101:
        return described
    content: dict[str, Any] = {}
    if isinstance(answer.body, type):
        content["schema"] = refer[answer.body]
    elif answer.body is not None:
        content["schema"] = answer.body
    if (example := EXAMPLES.get(operation.operation_id)) is not None:
        content["example"] = example
    described["content"] = {answer.media_type: content}
    return described


def _failure(
    endpoint: Endpoint, status: int, codes: list[str], refer: Mapping[type, Mapping[str, Any]]
) -> dict[str, Any]:
    return {
        "headers": failure_headers(endpoint, status, codes),
        "description": " ".join(f"`{code}`: {ERRORS[code].message}" for code in codes),
        "content": {
            JSON: {
                "schema": {
                    "allOf": [
                        refer[ErrorBody],
                        {
                            "type": "object",
                            "properties": {
                                "error": {
                                    "type": "object",
                                    "properties": {"code": {"enum": codes}},
                                }
                            },
                        },
                    ]
                }
            }
        },
    }
